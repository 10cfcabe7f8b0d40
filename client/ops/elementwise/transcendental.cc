#include "client/ops/elementwise/transcendental.h"

#include <limits>
#include <numbers>
#include <span>

#include "client/ops/elementwise/float_functions.h"

namespace outboard {

using internal::IsBelow;
using internal::Less;
using internal::Log1p;
using internal::Neg;
using internal::NodeBuilder;
using internal::OfFloat;
using internal::OfWideFloat;
using internal::Over;
using internal::Plus;

namespace {

constexpr double kPi = std::numbers::pi;
constexpr double kLn2 = std::numbers::ln2;

// Coefficients from the constant on, with a relative error of less than a quarter of the type's
// rounding.
struct Polynomial {
  std::span<const double> f32, f64;
};

// atan(z) / z of z^2, |z| <= tan(pi / 8).
constexpr double kAtan32[] = {0.9999999994,  -0.3333330689, 0.1999818304,
                              -0.1423953267, 0.1056982881,  -0.06026305228};
constexpr double kAtan64[] = {
    0.999999999999999999,  -0.333333333333331212,  0.199999999999408915,  -0.142857142792502449,
    0.111111107449196582,  -0.0909089680906402708, 0.0769204533090222495, -0.0666295181362919009,
    0.0584687829733087252, -0.0503510245660155184, 0.0379652574538659362, -0.0178053972054194452};
constexpr Polynomial kAtan = {kAtan32, kAtan64};

// erf(x) / x of x^2, |x| <= 1.
constexpr double kErf32[] = {1.128379166,    -0.3761262667,   0.1128359472,  -0.02685421201,
                             5.189087423e-3, -8.016864287e-4, 7.875875063e-5};
constexpr double kErf64[] = {
    1.12837916709551257,    -0.376126389031837481,   0.112837916709548787,
    -0.0268661706450767932, 5.22397762481801447e-3,  -8.54832698083378991e-4,
    1.20553311116427109e-4, -1.49255952668311816e-5, 1.6461000484121368e-6,
    -1.6350312701054695e-7, 1.46597752740474358e-8,  -1.13728488567916737e-9,
    5.9571761477489114e-11};
constexpr Polynomial kErf = {kErf32, kErf64};

// (1 - erf(a)) exp(a^2) (1 + 2a) of (a - 3) / (a + 3), 1 <= a <= 6.5.
constexpr double kErfc32[] = {1.25300806,     -0.1356210999,  -0.04756259048,
                              0.1296445517,   -0.1192636264,  0.06832616191,
                              -0.02387905536, 2.323881878e-3, 2.244883585e-3};
constexpr double kErfc64[] = {
    1.25300805826972965,     -0.135621106124581323,   -0.0475622943534528937,
    0.129645158702795399,    -0.119273663415030565,   0.068308027341594914,
    -0.0237705149334131172,  2.52939188685090906e-3,  1.8886907645395963e-3,
    -7.79833275655886784e-4, -1.05166027597936395e-4, 1.25105320407543023e-4,
    5.00313648368669514e-6,  -2.00968214374013399e-5, -9.70527063539606729e-7,
    3.27814850833609227e-6,  7.6198952090729772e-7};
constexpr Polynomial kErfc = {kErfc32, kErfc64};

// sinh(x) / x of x^2, |x| <= 1.
constexpr double kSinh32[] = {1.0, 0.1666666642, 8.333353206e-3, 1.983571388e-4, 2.819018793e-6};
constexpr double kSinh64[] = {1.0,
                              0.166666666666666678,
                              8.33333333333310003e-3,
                              1.98412698414564452e-4,
                              2.75573191507048919e-6,
                              2.50521240089533342e-8,
                              1.60571994541795184e-10,
                              7.7604064183362388e-13};
constexpr Polynomial kSinh = {kSinh32, kSinh64};

const UOp* Evaluate(const NodeBuilder& rec, const Polynomial& polynomial, const UOp* x) {
  const std::span<const double> c = x->dtype == DType::kF64 ? polynomial.f64 : polynomial.f32;
  const UOp* y = rec.FullLike(x, c.back());
  for (size_t i = c.size() - 1; i-- > 0;) y = Plus(rec, rec.Mul(y, x), c[i]);
  return y;
}

// x p(x^2).
const UOp* Odd(const NodeBuilder& rec, const Polynomial& polynomial, const UOp* x) {
  return rec.Mul(x, Evaluate(rec, polynomial, rec.Mul(x, x)));
}

// An odd function by its values for |x|.
template <typename F>
const UOp* Mirrored(const NodeBuilder& rec, const UOp* x, const F& function) {
  const UOp* const negative = IsBelow(rec, x, 0);
  const UOp* const y = function(rec.Where(negative, Neg(rec, x), x));
  return rec.Where(negative, Neg(rec, y), y);
}

// atan(a) is pi/4 + atan((a - 1) / (a + 1)), and pi/2 - atan(1 / a): so |z| stays within tan(pi /
// 8).
const UOp* Atan(const NodeBuilder& rec, const UOp* x) {
  return Mirrored(rec, x, [&](const UOp* a) {
    const UOp* const far = Less(rec, rec.FullLike(a, std::numbers::sqrt2 + 1), a);
    const UOp* const near = IsBelow(rec, a, std::numbers::sqrt2 - 1);
    const auto choose = [&](const UOp* if_far, const UOp* between, const UOp* if_near) {
      return rec.Where(far, if_far, rec.Where(near, if_near, between));
    };
    const auto number = [&](double value) { return rec.FullLike(a, value); };
    const UOp* const z =
        Over(rec, choose(number(-1), Plus(rec, a, -1), a), choose(a, Plus(rec, a, 1), number(1)));
    return rec.Add(choose(number(kPi / 2), number(kPi / 4), number(0)), Odd(rec, kAtan, z));
  });
}

// exp(a) / 2, which overflows only where the result does.
const UOp* HalfExp(const NodeBuilder& rec, const UOp* a) {
  const UOp* const root = rec.Alu(Op::kExp, rec.Scale(a, 0.5));
  return rec.Mul(rec.Scale(root, 0.5), root);
}

// Where x^2 might overflow, and 1 beside it is nothing in any type, `large` of x; else `small` of
// x.
template <typename Small, typename Large>
const UOp* Apart(const NodeBuilder& rec, const UOp* x, const Small& small, const Large& large) {
  const UOp* const one = rec.FullLike(x, 1);
  const UOp* const is_large = Less(rec, rec.FullLike(x, 0x1p28), x);
  return rec.Where(is_large, large(rec.Where(is_large, x, one)),
                   small(rec.Where(is_large, one, x)));
}

}  // namespace

Tensor log10(const Tensor& x, At at) {
  return OfFloat(x, at, [](const NodeBuilder& rec, const UOp* x) {
    return rec.Scale(rec.Alu(Op::kLog, x), std::numbers::log10e);
  });
}

Tensor atan(const Tensor& x, At at) { return OfWideFloat(x, at, Atan); }

// Half the angle is that of x beside 1 + sqrt(1 - x^2).
Tensor asin(const Tensor& x, At at) {
  return OfWideFloat(x, at, [](const NodeBuilder& rec, const UOp* x) {
    const UOp* const one = rec.FullLike(x, 1);
    const UOp* const square = rec.Mul(rec.Sub(one, x), rec.Add(one, x));
    const UOp* const half = Over(rec, x, rec.Add(one, rec.Alu(Op::kSqrt, square)));
    return rec.Scale(Atan(rec, half), 2);
  });
}

// Half the angle is that of sqrt(1 - x) beside sqrt(1 + x).
Tensor acos(const Tensor& x, At at) {
  return OfWideFloat(x, at, [](const NodeBuilder& rec, const UOp* x) {
    const UOp* const one = rec.FullLike(x, 1);
    const UOp* const ratio = Over(rec, rec.Sub(one, x), rec.Add(one, x));
    return rec.Scale(Atan(rec, rec.Alu(Op::kSqrt, ratio)), 2);
  });
}

Tensor sinh(const Tensor& x, At at) {
  return OfWideFloat(x, at, [](const NodeBuilder& rec, const UOp* x) {
    return Mirrored(rec, x, [&](const UOp* a) {
      const UOp* const near = IsBelow(rec, a, 1);
      const UOp* const e = rec.Sub(HalfExp(rec, a), rec.Scale(rec.Alu(Op::kExp, Neg(rec, a)), 0.5));
      return rec.Where(near, Odd(rec, kSinh, rec.Where(near, a, rec.FullLike(a, 0))), e);
    });
  });
}

Tensor cosh(const Tensor& x, At at) {
  return OfWideFloat(x, at, [](const NodeBuilder& rec, const UOp* x) {
    const UOp* const a = rec.Alu(Op::kMax, x, Neg(rec, x));
    return rec.Add(HalfExp(rec, a), rec.Scale(rec.Alu(Op::kExp, Neg(rec, a)), 0.5));
  });
}

// log(a + sqrt(a^2 + 1)), written so that a small one keeps its digits.
Tensor asinh(const Tensor& x, At at) {
  return OfWideFloat(x, at, [](const NodeBuilder& rec, const UOp* x) {
    return Mirrored(rec, x, [&](const UOp* a) {
      return Apart(
          rec, a,
          [&](const UOp* a) {
            const UOp* const square = rec.Mul(a, a);
            const UOp* const root = rec.Alu(Op::kSqrt, Plus(rec, square, 1));
            return Log1p(rec, rec.Add(a, Over(rec, square, Plus(rec, root, 1))));
          },
          [&](const UOp* a) { return Plus(rec, rec.Alu(Op::kLog, a), kLn2); });
    });
  });
}

// log(x + sqrt(x^2 - 1)), with t = x - 1.
Tensor acosh(const Tensor& x, At at) {
  return OfWideFloat(x, at, [](const NodeBuilder& rec, const UOp* x) {
    return Apart(
        rec, x,
        [&](const UOp* x) {
          // Below the domain t + root would round to 0.
          const UOp* const outside = rec.FullLike(x, std::numeric_limits<double>::quiet_NaN());
          const UOp* const t = rec.Where(IsBelow(rec, x, 1), outside, Plus(rec, x, -1));
          const UOp* const root = rec.Alu(Op::kSqrt, rec.Mul(t, Plus(rec, t, 2)));
          return Log1p(rec, rec.Add(t, root));
        },
        [&](const UOp* x) { return Plus(rec, rec.Alu(Op::kLog, x), kLn2); });
  });
}

// log((1 + a) / (1 - a)) / 2.
Tensor atanh(const Tensor& x, At at) {
  return OfWideFloat(x, at, [](const NodeBuilder& rec, const UOp* x) {
    return Mirrored(rec, x, [&](const UOp* a) {
      const UOp* const rest = rec.Sub(rec.FullLike(a, 1), a);
      return rec.Scale(Log1p(rec, Over(rec, rec.Scale(a, 2), rest)), 0.5);
    });
  });
}

Tensor erf(const Tensor& x, At at) {
  return OfWideFloat(x, at, [](const NodeBuilder& rec, const UOp* x) {
    return Mirrored(rec, x, [&](const UOp* a) {
      const auto number = [&](double value) { return rec.FullLike(a, value); };
      const UOp* const near = IsBelow(rec, a, 1);
      const UOp* const low = Odd(rec, kErf, rec.Where(near, a, number(0)));
      // From 6.5 on it is 1 in every type.
      const UOp* const end = rec.Where(Less(rec, number(6.5), a), number(6.5), a);
      const UOp* const b = rec.Where(near, number(1), end);
      const UOp* const place = Over(rec, Plus(rec, b, -3), Plus(rec, b, 3));
      const UOp* const e = rec.Alu(Op::kExp, Neg(rec, rec.Mul(b, b)));
      const UOp* const rest =
          Over(rec, rec.Mul(e, Evaluate(rec, kErfc, place)), Plus(rec, rec.Scale(b, 2), 1));
      return rec.Where(near, low, rec.Sub(number(1), rest));
    });
  });
}

}  // namespace outboard
