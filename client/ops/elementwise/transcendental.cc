#include "client/ops/elementwise/transcendental.h"

#include <numbers>
#include <span>

#include "client/ops/elementwise/float_functions.h"

namespace outboard {

using internal::Log1p;
using internal::NodeExpr;
using internal::OfFloat;
using internal::OfWideFloat;

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

// By Horner's rule.
NodeExpr Evaluate(const Polynomial& polynomial, const NodeExpr& x) {
  const std::span<const double> c = x->dtype == DType::kF64 ? polynomial.f64 : polynomial.f32;
  NodeExpr y = x.Full(c.back());
  for (size_t i = c.size() - 1; i-- > 0;) y = y * x + c[i];
  return y;
}

// x p(x^2).
NodeExpr Odd(const Polynomial& polynomial, const NodeExpr& x) {
  return x * Evaluate(polynomial, x * x);
}

// An odd function by its values for |x|.
template <typename F>
NodeExpr Mirrored(const NodeExpr& x, const F& function) {
  const NodeExpr is_negative = x < 0;
  const NodeExpr y = function(Where(is_negative, -x, x));
  return Where(is_negative, -y, y);
}

// atan(a) is pi/4 + atan((a - 1) / (a + 1)), and pi/2 - atan(1 / a): so |z| stays within tan(pi /
// 8).
NodeExpr Atan(const NodeExpr& x) {
  return Mirrored(x, [](const NodeExpr& a) {
    const NodeExpr is_far = a > std::numbers::sqrt2 + 1, is_near = a < std::numbers::sqrt2 - 1;
    const auto choose = [&](const NodeExpr& far, const NodeExpr& between, const NodeExpr& near) {
      return Where(is_far, far, Where(is_near, near, between));
    };
    const NodeExpr z = choose(a.Full(-1), a - 1, a) / choose(a, a + 1, a.Full(1));
    return choose(a.Full(kPi / 2), a.Full(kPi / 4), a.Full(0)) + Odd(kAtan, z);
  });
}

// exp(a) / 2, which overflows only where the result does.
NodeExpr HalfExp(const NodeExpr& a) {
  const NodeExpr root = Exp(a * 0.5);
  return root * 0.5 * root;
}

// Where x^2 might overflow, and 1 beside it is nothing in any type, `large` of x; else `small` of
// x.
template <typename Small, typename Large>
NodeExpr Apart(const NodeExpr& x, const Small& small, const Large& large) {
  const NodeExpr is_large = x > 0x1p28;
  return Where(is_large, large(Where(is_large, x, 1)), small(Where(is_large, 1, x)));
}

// log(2x), where x + sqrt(x^2 + 1) is 2x.
NodeExpr LogOfDouble(const NodeExpr& x) { return Log(x) + kLn2; }

// Half the angle is that of x beside 1 + sqrt(1 - x^2). Two roots: the slope at 1 is infinite,
// where that of their product would be NaN.
NodeExpr Asin(const NodeExpr& x) { return Atan(x / (1 + Sqrt(1 - x) * Sqrt(1 + x))) * 2; }

// Half the angle is that of sqrt(1 - a) beside sqrt(1 + a), for a = |x|; of -x it is pi less.
NodeExpr Acos(const NodeExpr& x) {
  const NodeExpr is_negative = x < 0, a = Where(is_negative, -x, x);
  const NodeExpr angle = Atan(Sqrt(1 - a) / Sqrt(1 + a)) * 2;
  return Where(is_negative, kPi - angle, angle);
}

// (exp(a) - exp(-a)) / 2; near 0, where they cancel, by its series.
NodeExpr Sinh(const NodeExpr& x) {
  return Mirrored(x, [](const NodeExpr& a) {
    const NodeExpr is_near = a < 1;
    return Where(is_near, Odd(kSinh, Where(is_near, a, 0)), HalfExp(a) - Exp(-a) * 0.5);
  });
}

NodeExpr Cosh(const NodeExpr& x) { return HalfExp(Abs(x)) + Exp(-Abs(x)) * 0.5; }

// log(a + sqrt(a^2 + 1)), written so that a small one keeps its digits.
NodeExpr Asinh(const NodeExpr& x) {
  const auto small = [](const NodeExpr& a) {
    const NodeExpr square = a * a;
    return Log1p(a + square / (Sqrt(square + 1) + 1));
  };
  return Mirrored(x, [&](const NodeExpr& a) { return Apart(a, small, LogOfDouble); });
}

// log(x + sqrt(x^2 - 1)), with t = x - 1; NaN below 1, and so is the slope.
NodeExpr Acosh(const NodeExpr& x) {
  const auto small = [](const NodeExpr& x) {
    const NodeExpr t = x - 1;
    return Log1p(t + Sqrt(t) * Sqrt(t + 2));
  };
  return Apart(x, small, LogOfDouble);
}

// log((1 + a) / (1 - a)) / 2.
NodeExpr Atanh(const NodeExpr& x) {
  return Mirrored(x, [](const NodeExpr& a) { return Log1p(a * 2 / (1 - a)) * 0.5; });
}

// By its series up to 1, from there as 1 - exp(-a^2) p((a - 3) / (a + 3)) / (1 + 2a).
NodeExpr Erf(const NodeExpr& x) {
  return Mirrored(x, [](const NodeExpr& a) {
    const NodeExpr is_near = a < 1;
    const NodeExpr low = Odd(kErf, Where(is_near, a, 0));
    const NodeExpr end = Where(a > 6.5, 6.5, a);  // from there on it is 1 in every type
    const NodeExpr b = Where(is_near, 1, end);
    const NodeExpr rest = Exp(-(b * b)) * Evaluate(kErfc, (b - 3) / (b + 3)) / (b * 2 + 1);
    return Where(is_near, low, 1 - rest);
  });
}

}  // namespace

Tensor log10(const Tensor& x, At at) {
  return OfFloat(x, at, [](const NodeExpr& x) { return Log(x) * std::numbers::log10e; });
}

// Each opens its caller's line.
#define OB_FUNCTION(name, formula) \
  Tensor name(const Tensor& x, At at) { return OfWideFloat(x, at, formula); }
OB_FUNCTION(sinh, Sinh)
OB_FUNCTION(cosh, Cosh)
OB_FUNCTION(asin, Asin)
OB_FUNCTION(acos, Acos)
OB_FUNCTION(atan, Atan)
OB_FUNCTION(asinh, Asinh)
OB_FUNCTION(acosh, Acosh)
OB_FUNCTION(atanh, Atanh)
OB_FUNCTION(erf, Erf)
#undef OB_FUNCTION

}  // namespace outboard
