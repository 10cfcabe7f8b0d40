// Operations on one element at a time.
#include <cmath>
#include <limits>
#include <numbers>

#include "absl/strings/str_cat.h"
#include "client/tensor/operands.h"
#include "client/tensor/promote.h"
#include "client/tensor/recorder.h"
#include "client/tensor/tensor.h"

namespace outboard {

using internal::Operands;
using internal::Recorder;

namespace {

// A unary function of floats; integers become f32 first.
template <typename F>
Tensor OfFloat(const Tensor& tensor, const At& at, const F& function) {
  const Recorder rec(at);
  const UOp* const x = tensor.NodeIn(rec);
  return Tensor::FromNode(rec, function(rec, rec.Cast(x, FloatOf(x->dtype))));
}

template <typename F>
Tensor Of(const Tensor& tensor, const At& at, const F& function) {
  const Recorder rec(at);
  return Tensor::FromNode(rec, function(rec, tensor.NodeIn(rec)));
}

Tensor Binary(Op op, const Arg& a, const Arg& b) {
  const Recorder rec(a.at());
  const Operands x = internal::Promoted(rec, a, b, Name(op));
  return Tensor::FromNode(rec, rec.Alu(op, x.a, x.b));
}

const UOp* Over(const Recorder& rec, double a, const UOp* x) {
  return rec.Alu(Op::kFDiv, rec.FullLike(x, a), x);
}
const UOp* Less(const Recorder& rec, const UOp* a, const UOp* b) {
  return rec.Alu(Op::kCmpLt, a, b);
}
// 1 / (1 + e^-x), by exponentials of -|x|: none overflows, and in a gradient no infinity meets a zero.
const UOp* Sigmoid(const Recorder& rec, const UOp* x) {
  const UOp *const zero = rec.FullLike(x, 0), *const one = rec.FullLike(x, 1);
  const UOp* const negative = Less(rec, x, zero);
  const UOp* const e = rec.Alu(Op::kExp, rec.Where(negative, x, rec.Alu(Op::kNeg, x)));
  return rec.Alu(Op::kFDiv, rec.Where(negative, e, one), rec.Add(one, e));
}
// a <= b, false for NaN.
const UOp* LessEqual(const Recorder& rec, const UOp* a, const UOp* b) {
  if (!IsFloat(a->dtype)) return rec.Not(Less(rec, b, a));
  return rec.Alu(Op::kOr, Less(rec, a, b), rec.Alu(Op::kCmpEq, a, b));
}

}  // namespace

Tensor operator+(const Arg& a, const Arg& b) {
  const Recorder rec(a.at());
  const Operands x = internal::Promoted(rec, a, b, "+");
  // The sum of truth values is whether any is true.
  return Tensor::FromNode(rec, rec.Alu(IsBool(x.a->dtype) ? Op::kOr : Op::kAdd, x.a, x.b));
}
Tensor operator-(const Arg& a, const Arg& b) {
  const Recorder rec(a.at());
  const Operands x = internal::Promoted(rec, a, b, "-");
  if (IsBool(x.a->dtype)) rec.Invalid("-: bool has no difference; use ^");
  return Tensor::FromNode(rec, rec.Sub(x.a, x.b));
}
Tensor operator*(const Arg& a, const Arg& b) {
  const Recorder rec(a.at());
  const Operands x = internal::Promoted(rec, a, b, "*");
  return Tensor::FromNode(rec, rec.Alu(IsBool(x.a->dtype) ? Op::kAnd : Op::kMul, x.a, x.b));
}
Tensor operator/(const Arg& a, const Arg& b) {
  const Recorder rec(a.at());
  const Operands x = internal::Promoted(rec, a, b, "/");
  const DType dtype = FloatOf(x.a->dtype);
  return Tensor::FromNode(rec, rec.Alu(Op::kFDiv, rec.Cast(x.a, dtype), rec.Cast(x.b, dtype)));
}
Tensor operator%(const Arg& a, const Arg& b) { return Binary(Op::kMod, a, b); }
Tensor operator-(const Arg& a) {
  const Recorder rec(a.at());
  return Tensor::FromNode(rec, rec.Alu(Op::kNeg, a.tensor().NodeIn(rec)));
}
Tensor operator<(const Arg& a, const Arg& b) { return Binary(Op::kCmpLt, a, b); }
Tensor operator>(const Arg& a, const Arg& b) {
  const Recorder rec(a.at());
  const Operands x = internal::Promoted(rec, a, b, ">");
  return Tensor::FromNode(rec, Less(rec, x.b, x.a));
}
Tensor operator<=(const Arg& a, const Arg& b) {
  const Recorder rec(a.at());
  const Operands x = internal::Promoted(rec, a, b, "<=");
  return Tensor::FromNode(rec, LessEqual(rec, x.a, x.b));
}
Tensor operator>=(const Arg& a, const Arg& b) {
  const Recorder rec(a.at());
  const Operands x = internal::Promoted(rec, a, b, ">=");
  return Tensor::FromNode(rec, LessEqual(rec, x.b, x.a));
}
Tensor operator==(const Arg& a, const Arg& b) { return Binary(Op::kCmpEq, a, b); }
Tensor operator!=(const Arg& a, const Arg& b) { return Binary(Op::kCmpNe, a, b); }
Tensor operator&(const Arg& a, const Arg& b) { return Binary(Op::kAnd, a, b); }
Tensor operator|(const Arg& a, const Arg& b) { return Binary(Op::kOr, a, b); }
Tensor operator^(const Arg& a, const Arg& b) { return Binary(Op::kXor, a, b); }
Tensor operator<<(const Arg& a, const Arg& b) { return Binary(Op::kShl, a, b); }
Tensor operator>>(const Arg& a, const Arg& b) { return Binary(Op::kShr, a, b); }

Tensor& Tensor::operator+=(const Arg& other) { return *this = Arg(*this, other.at()) + other; }
Tensor& Tensor::operator-=(const Arg& other) { return *this = Arg(*this, other.at()) - other; }
Tensor& Tensor::operator*=(const Arg& other) { return *this = Arg(*this, other.at()) * other; }
Tensor& Tensor::operator/=(const Arg& other) { return *this = Arg(*this, other.at()) / other; }

Tensor Tensor::idiv(const Arg& other) const {
  return Binary(Op::kIDiv, Arg(*this, other.at()), other);
}
Tensor Tensor::maximum(const Arg& other) const {
  const Recorder rec(other.at());
  const Operands x = internal::Promoted(rec, Arg(*this, other.at()), other, "maximum");
  return FromNode(rec, rec.Alu(IsBool(x.a->dtype) ? Op::kOr : Op::kMax, x.a, x.b));
}
Tensor Tensor::minimum(const Arg& other) const {
  const Recorder rec(other.at());
  const Operands x = internal::Promoted(rec, Arg(*this, other.at()), other, "minimum");
  if (IsBool(x.a->dtype)) return FromNode(rec, rec.Alu(Op::kAnd, x.a, x.b));
  if (!IsFloat(x.a->dtype)) return FromNode(rec, rec.Where(Less(rec, x.a, x.b), x.a, x.b));
  const UOp* const most = rec.Alu(Op::kMax, rec.Alu(Op::kNeg, x.a), rec.Alu(Op::kNeg, x.b));
  return FromNode(rec, rec.Alu(Op::kNeg, most));
}
Tensor Tensor::where(const Arg& a, const Arg& b) const {
  const Recorder rec(a.at());
  const UOp* const condition = NodeIn(rec);
  if (!IsBool(condition->dtype))
    rec.Invalid(absl::StrCat("where: the condition is ", std::string(Name(condition->dtype)),
                             ", not bool"));
  const Operands x = internal::Promoted(rec, a, b, "where");
  const Shape shape = rec.BroadcastShape(condition->shape, x.a->shape, "where");
  return FromNode(rec, rec.Where(rec.Broadcast(condition, shape), rec.Broadcast(x.a, shape),
                                 rec.Broadcast(x.b, shape)));
}

Tensor Tensor::cast(DType dtype, At at) const {
  return Of(*this, at, [&](const Recorder& rec, const UOp* x) { return rec.Cast(x, dtype); });
}
Tensor Tensor::bitcast(DType dtype, At at) const {
  return Of(*this, at, [&](const Recorder& rec, const UOp* x) {
    return x->dtype == dtype ? x : rec.Make(Op::kBitcast, dtype, {x});
  });
}
Tensor Tensor::neg(At at) const { return -Arg(*this, at); }

Tensor Tensor::exp(At at) const {
  return OfFloat(*this, at, [](const Recorder& rec, const UOp* x) { return rec.Alu(Op::kExp, x); });
}
Tensor Tensor::exp2(At at) const {
  return OfFloat(*this, at,
                 [](const Recorder& rec, const UOp* x) { return rec.Alu(Op::kExp2, x); });
}
Tensor Tensor::log(At at) const {
  return OfFloat(*this, at, [](const Recorder& rec, const UOp* x) { return rec.Alu(Op::kLog, x); });
}
Tensor Tensor::log2(At at) const {
  return OfFloat(*this, at,
                 [](const Recorder& rec, const UOp* x) { return rec.Alu(Op::kLog2, x); });
}
Tensor Tensor::sin(At at) const {
  return OfFloat(*this, at, [](const Recorder& rec, const UOp* x) { return rec.Alu(Op::kSin, x); });
}
Tensor Tensor::cos(At at) const {
  return OfFloat(*this, at, [](const Recorder& rec, const UOp* x) { return rec.Alu(Op::kCos, x); });
}
Tensor Tensor::tan(At at) const { return Arg(sin(at), at) / Arg(cos(at), at); }
Tensor Tensor::sqrt(At at) const {
  return OfFloat(*this, at,
                 [](const Recorder& rec, const UOp* x) { return rec.Alu(Op::kSqrt, x); });
}
Tensor Tensor::rsqrt(At at) const {
  return OfFloat(*this, at, [](const Recorder& rec, const UOp* x) {
    return Over(rec, 1, rec.Alu(Op::kSqrt, x));
  });
}
Tensor Tensor::reciprocal(At at) const {
  return OfFloat(*this, at, [](const Recorder& rec, const UOp* x) { return Over(rec, 1, x); });
}
Tensor Tensor::square(At at) const { return Arg(*this, at) * Arg(*this, at); }
Tensor Tensor::abs(At at) const {
  return Of(*this, at, [](const Recorder& rec, const UOp* x) {
    if (IsUnsigned(x->dtype) || IsBool(x->dtype)) return x;
    return rec.Alu(Op::kMax, x, rec.Alu(Op::kNeg, x));
  });
}
Tensor Tensor::sign(At at) const {
  return Of(*this, at, [](const Recorder& rec, const UOp* x) {
    if (IsBool(x->dtype)) return x;
    const UOp* const zero = rec.FullLike(x, 0);
    const UOp* const positive = rec.Where(Less(rec, zero, x), rec.FullLike(x, 1), zero);
    if (IsUnsigned(x->dtype)) return positive;
    const UOp* const negative = rec.Where(Less(rec, x, zero), rec.FullLike(x, -1), positive);
    // NaN stays.
    return IsFloat(x->dtype) ? rec.Where(rec.Alu(Op::kCmpNe, x, x), x, negative) : negative;
  });
}
Tensor Tensor::trunc(At at) const {
  return Of(*this, at, [](const Recorder& rec, const UOp* x) {
    return IsFloat(x->dtype) ? rec.Alu(Op::kTrunc, x) : x;
  });
}
Tensor Tensor::floor(At at) const {
  return Of(*this, at, [](const Recorder& rec, const UOp* x) {
    if (!IsFloat(x->dtype)) return x;
    const UOp* const t = rec.Alu(Op::kTrunc, x);
    return rec.Where(Less(rec, x, t), rec.Add(t, rec.FullLike(t, -1)), t);
  });
}
Tensor Tensor::ceil(At at) const {
  return Of(*this, at, [](const Recorder& rec, const UOp* x) {
    if (!IsFloat(x->dtype)) return x;
    const UOp* const t = rec.Alu(Op::kTrunc, x);
    return rec.Where(Less(rec, t, x), rec.Add(t, rec.FullLike(t, 1)), t);
  });
}

Tensor Tensor::relu(At at) const {
  return Of(*this, at, [](const Recorder& rec, const UOp* x) {
    if (IsBool(x->dtype)) return x;
    return rec.Alu(Op::kMax, x, rec.FullLike(x, 0));
  });
}
Tensor Tensor::leaky_relu(double slope, At at) const {
  return OfFloat(*this, at, [&](const Recorder& rec, const UOp* x) {
    return rec.Where(Less(rec, x, rec.FullLike(x, 0)), rec.Scale(x, slope), x);
  });
}
Tensor Tensor::elu(double alpha, At at) const {
  return OfFloat(*this, at, [&](const Recorder& rec, const UOp* x) {
    // The argument of exp is guarded: its branch may overflow where it is not taken, and 0 * inf is
    // NaN in a gradient.
    const UOp* const zero = rec.FullLike(x, 0);
    const UOp* const low = rec.Where(Less(rec, x, zero), x, zero);
    const UOp* const curve = rec.Scale(rec.Add(rec.Alu(Op::kExp, low), rec.FullLike(x, -1)), alpha);
    return rec.Where(Less(rec, x, zero), curve, x);
  });
}
Tensor Tensor::sigmoid(At at) const { return OfFloat(*this, at, Sigmoid); }
Tensor Tensor::tanh(At at) const {
  return OfFloat(*this, at,
                 [](const Recorder& rec, const UOp* x) { return rec.Alu(Op::kTanh, x); });
}
Tensor Tensor::silu(At at) const {
  return OfFloat(*this, at,
                 [](const Recorder& rec, const UOp* x) { return rec.Mul(x, Sigmoid(rec, x)); });
}
Tensor Tensor::gelu(At at) const {
  return OfFloat(*this, at, [](const Recorder& rec, const UOp* x) {
    // (1 + tanh y) / 2 is sigmoid(2y), which loses nothing where the tanh is near -1.
    const UOp* const cube = rec.Mul(x, rec.Mul(x, x));
    const UOp* const inner =
        rec.Scale(rec.Add(x, rec.Scale(cube, 0.044715)), 2 * std::sqrt(2 / std::numbers::pi));
    return rec.Mul(x, Sigmoid(rec, inner));
  });
}
Tensor Tensor::softplus(At at) const {
  return OfFloat(*this, at, [](const Recorder& rec, const UOp* x) {
    // max(x, 0) + log(1 + e) with e = exp(-|x|) overflows nowhere. Both sides of each choice meet at
    // 0 with the slopes of the whole, so its gradient is right there too.
    const UOp *const zero = rec.FullLike(x, 0), *const one = rec.FullLike(x, 1);
    const UOp* const negative = Less(rec, x, zero);
    const UOp* const e = rec.Alu(Op::kExp, rec.Where(negative, x, rec.Alu(Op::kNeg, x)));
    const UOp* const sum = rec.Add(one, e);
    const UOp* const lost = rec.Sub(e, rec.Sub(sum, one));  // what the sum has rounded away
    return rec.Add(rec.Where(negative, zero, x), rec.Add(rec.Alu(Op::kLog, sum), lost));
  });
}
Tensor Tensor::clip(const Arg& low, const Arg& high) const {
  if (IsBool(dtype(low.at()))) ThrowInvalid(low.at(), "clip: needs numbers, not bool");
  return maximum(low).minimum(high);
}
Tensor Tensor::logical_not(At at) const {
  return Of(*this, at,
            [](const Recorder& rec, const UOp* x) { return rec.Not(rec.Cast(x, DType::kBool)); });
}
Tensor Tensor::isnan(At at) const {
  return Of(*this, at, [](const Recorder& rec, const UOp* x) { return rec.Alu(Op::kCmpNe, x, x); });
}

Tensor Tensor::isinf(At at) const {
  return Of(*this, at, [](const Recorder& rec, const UOp* x) {
    // f8e4m3 has none, and its constant for infinity is a number.
    if (!IsFloat(x->dtype) || x->dtype == DType::kF8E4M3)
      return rec.Full(rec.ConstInt(DType::kBool, 0), x->shape);
    const UOp* const size = rec.Alu(Op::kMax, x, rec.Alu(Op::kNeg, x));
    return rec.Alu(Op::kCmpEq, size, rec.FullLike(x, std::numeric_limits<double>::infinity()));
  });
}
Tensor Tensor::isfinite(At at) const {
  return Tensor(Arg(isnan(at), at) | Arg(isinf(at), at)).logical_not(at);
}

Tensor Tensor::round(At at) const {
  return Of(*this, at, [](const Recorder& rec, const UOp* x) {
    if (!IsFloat(x->dtype)) return x;
    const UOp* const low = rec.Alu(Op::kTrunc, x);
    const UOp* const rest = rec.Sub(x, low);  // exact
    const UOp* const size = rec.Alu(Op::kMax, rest, rec.Alu(Op::kNeg, rest));
    const UOp* const half = rec.Scale(low, 0.5);
    const UOp* const odd = rec.Alu(Op::kCmpNe, half, rec.Alu(Op::kTrunc, half));
    const UOp* const tie = rec.Alu(Op::kCmpEq, size, rec.FullLike(x, 0.5));
    const UOp* const away =
        rec.Alu(Op::kOr, Less(rec, rec.FullLike(x, 0.5), size), rec.Alu(Op::kAnd, tie, odd));
    const UOp* const one =
        rec.Where(Less(rec, x, rec.FullLike(x, 0)), rec.FullLike(x, -1), rec.FullLike(x, 1));
    return rec.Where(away, rec.Add(low, one), low);  // `low` itself keeps -0
  });
}

namespace {

const UOp* PowOfNumber(const Recorder& rec, const UOp* x, double exponent) {
  const double size = std::abs(exponent);
  if (size <= 64 && size == std::trunc(size)) {  // by squaring: exact signs, no logarithm
    const UOp* result = nullptr;
    const UOp* square = x;
    for (int n = static_cast<int>(size); n > 0; n /= 2) {
      if (n % 2 == 1) result = result == nullptr ? square : rec.Mul(result, square);
      if (n > 1) square = rec.Mul(square, square);
    }
    if (result == nullptr) return rec.FullLike(x, 1);
    return exponent < 0 ? Over(rec, 1, result) : result;
  }
  if (exponent == 0.5) return rec.Alu(Op::kSqrt, x);
  return rec.Alu(Op::kExp2, rec.Scale(rec.Alu(Op::kLog2, x), exponent));
}

// |x|^y by logarithms, then the sign: NaN for a negative x and a y that is no integer.
const UOp* Power(const Recorder& rec, const UOp* x, const UOp* y) {
  const UOp* const zero = rec.FullLike(x, 0);
  const UOp* const one = rec.FullLike(x, 1);
  const UOp* const size = rec.Alu(Op::kMax, x, rec.Alu(Op::kNeg, x));
  const UOp* const power = rec.Alu(Op::kExp2, rec.Mul(y, rec.Alu(Op::kLog2, size)));
  const UOp* const half = rec.Scale(y, 0.5);
  const UOp* const odd = rec.Alu(Op::kCmpNe, half, rec.Alu(Op::kTrunc, half));
  const UOp* const broken = rec.Alu(Op::kCmpNe, y, rec.Alu(Op::kTrunc, y));
  const UOp* const turned =
      rec.Where(broken, rec.FullLike(x, std::numeric_limits<double>::quiet_NaN()),
                rec.Where(odd, rec.Alu(Op::kNeg, power), power));
  const UOp* const result = rec.Where(Less(rec, x, zero), turned, power);
  return rec.Where(rec.Alu(Op::kCmpEq, y, zero), one, result);  // also of 0, whose log is -inf
}

}  // namespace

Tensor Tensor::pow(const Arg& exponent) const {
  const Recorder rec(exponent.at());
  if (!exponent.is_tensor()) {
    const UOp* const x = NodeIn(rec);
    return FromNode(rec, PowOfNumber(rec, rec.Cast(x, FloatOf(x->dtype)), exponent.float_value()));
  }
  const Operands x = internal::Promoted(rec, Arg(*this, exponent.at()), exponent, "pow");
  const DType dtype = FloatOf(x.a->dtype);
  return FromNode(rec, Power(rec, rec.Cast(x.a, dtype), rec.Cast(x.b, dtype)));
}

}  // namespace outboard
