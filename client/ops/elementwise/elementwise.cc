// Operations on one element at a time.
#include <cmath>
#include <limits>
#include <numbers>

#include "absl/strings/str_cat.h"
#include "client/lazy/node_expr.h"
#include "client/lazy/operands.h"
#include "client/ops/elementwise/arithmetic.h"
#include "client/ops/elementwise/float_functions.h"
#include "client/tensor/tensor.h"

namespace outboard {

using internal::Iota;
using internal::NodeBuilder;
using internal::NodeExpr;
using internal::Of;
using internal::OfFloat;
using internal::Sigmoid;
using internal::TensorOf;

namespace {

// Both operands, promoted and broadcast, through `function`. `what` names the operation in errors.
template <typename F>
Tensor OfBoth(const char* what, const Arg& a, const Arg& b, const F& function) {
  const NodeBuilder rec(a.at());
  const auto [x, y] = internal::Promoted(rec, a, b, what);
  return TensorOf(function(NodeExpr(rec, x), NodeExpr(rec, y)));
}

Tensor Binary(Op op, const Arg& a, const Arg& b) {
  const NodeBuilder rec(a.at());
  const auto [x, y] = internal::Promoted(rec, a, b, Name(op));
  return TensorOf(NodeExpr(rec, x).Binary(op, {rec, y}));
}

template <typename F>
Tensor Compared(std::string_view what, const Arg& a, const Arg& b, const F& function) {
  const NodeBuilder rec(a.at());
  const auto [x, y] = internal::Comparable(rec, a, b, what);
  return TensorOf(function(NodeExpr(rec, x), NodeExpr(rec, y)));
}

// Of u64 beside a signed integer by the sign first, else of one type.
NodeExpr Less(const NodeExpr& a, const NodeExpr& b) {
  if (a->dtype == b->dtype) return a < b;
  return IsSigned(b->dtype) ? (b > 0) & (a < b.Cast(a->dtype)) : (a < 0) | (a.Cast(b->dtype) < b);
}
NodeExpr Equal(const NodeExpr& a, const NodeExpr& b) {
  if (a->dtype == b->dtype) return a == b;
  return IsSigned(a->dtype) ? Equal(b, a) : !(b < 0) & (a == b.Cast(a->dtype));
}
NodeExpr NotEqual(const NodeExpr& a, const NodeExpr& b) {
  return a->dtype == b->dtype ? a.Binary(Op::kCmpNe, b) : !Equal(a, b);
}

// a <= b, false for NaN.
NodeExpr LessEqual(const NodeExpr& a, const NodeExpr& b) {
  return IsFloat(a->dtype) ? (a < b) | (a == b) : !Less(b, a);
}

DType UnsignedOfBytes(int bytes) {
  return bytes == 1   ? DType::kU8
         : bytes == 2 ? DType::kU16
         : bytes == 4 ? DType::kU32
                      : DType::kU64;
}
NodeExpr BitsOf(const NodeExpr& x, DType dtype) {
  return x->dtype == dtype ? x : Bitcast(x, dtype);
}

// How many of the narrower type's elements make one of the wider's; x has an axis, and no bool
// takes part.
int64_t PartsOf(const NodeExpr& x, DType dtype) {
  if (x->rank() == 0 || IsBool(x->dtype) || IsBool(dtype) || dtype == DType::kVoid)
    ThrowInvalid(absl::StrCat("bitcast: from ", std::string(Name(x->dtype)), " ",
                              internal::DimsToString(x->shape), " to another width, ",
                              std::string(Name(dtype))));
  const int from = ByteWidth(x->dtype), to = ByteWidth(dtype);
  return from > to ? from / to : to / from;
}

// The bit at which each part along the last axis of `parts` begins: the lowest first.
NodeExpr FirstBits(const NodeBuilder& rec, DType dtype, const Shape& parts, int bits) {
  return Iota(rec, dtype, parts, static_cast<int>(parts.size()) - 1) * bits;
}

NodeExpr Narrowed(const NodeExpr& x, DType dtype) {
  const int64_t parts = PartsOf(x, dtype);
  const DType word = UnsignedOfBytes(ByteWidth(x->dtype)), part = UnsignedOfBytes(ByteWidth(dtype));
  Shape apart(x->shape.begin(), x->shape.end()), flat = apart;
  apart.emplace_back(1);
  const NodeExpr column = BitsOf(x, word).Reshape(apart);
  apart.back() = Dim(parts);
  const NodeExpr shift = FirstBits(x.rec(), word, apart, 8 * ByteWidth(dtype));
  const NodeExpr pieces = (column.Expand(apart) >> shift).Cast(part);
  flat.back() = Dim(x.rec().LengthOf(x, x->rank() - 1) * parts);
  return BitsOf(pieces.Reshape(flat), dtype);
}

NodeExpr Widened(const NodeExpr& x, DType dtype) {
  const int64_t parts = PartsOf(x, dtype), length = x.rec().LengthOf(x, x->rank() - 1);
  if (length % parts != 0)
    ThrowInvalid(absl::StrCat("bitcast: the last axis of ", internal::DimsToString(x->shape),
                              " has no whole number of ", std::string(Name(dtype)), " in it"));
  const DType word = UnsignedOfBytes(ByteWidth(dtype)), part = UnsignedOfBytes(ByteWidth(x->dtype));
  Shape apart(x->shape.begin(), x->shape.end());
  apart.back() = Dim(length / parts);
  apart.emplace_back(parts);
  const NodeExpr pieces = BitsOf(x, part).Reshape(apart).Cast(word);
  const NodeExpr shift = FirstBits(x.rec(), word, apart, 8 * ByteWidth(x->dtype));
  const int axis = x->rank();
  return BitsOf((pieces << shift).Sum({axis}).Squeeze({axis}), dtype);
}

}  // namespace

// The sum of truth values is whether any is true, their product whether both are.
Tensor operator+(const Arg& a, const Arg& b) {
  return OfBoth("+", a, b, [](const NodeExpr& x, const NodeExpr& y) {
    return IsBool(x->dtype) ? x | y : x + y;
  });
}
Tensor operator-(const Arg& a, const Arg& b) {
  return OfBoth("-", a, b, [](const NodeExpr& x, const NodeExpr& y) {
    if (IsBool(x->dtype)) ThrowInvalid("-: bool has no difference; use ^");
    return x - y;
  });
}
Tensor operator*(const Arg& a, const Arg& b) {
  return OfBoth("*", a, b, [](const NodeExpr& x, const NodeExpr& y) {
    return IsBool(x->dtype) ? x & y : x * y;
  });
}
Tensor operator/(const Arg& a, const Arg& b) {
  return OfBoth("/", a, b, [](const NodeExpr& x, const NodeExpr& y) {
    const DType dtype = FloatOf(x->dtype);
    return x.Cast(dtype) / y.Cast(dtype);
  });
}
Tensor operator%(const Arg& a, const Arg& b) { return Binary(Op::kMod, a, b); }
Tensor operator-(const Arg& a) {
  return Of(a.tensor(), a.at(), [](const NodeExpr& x) { return -x; });
}
Tensor operator<(const Arg& a, const Arg& b) { return Compared(Name(Op::kCmpLt), a, b, Less); }
Tensor operator>(const Arg& a, const Arg& b) {
  return Compared(">", a, b, [](const NodeExpr& x, const NodeExpr& y) { return Less(y, x); });
}
Tensor operator<=(const Arg& a, const Arg& b) { return Compared("<=", a, b, LessEqual); }
Tensor operator>=(const Arg& a, const Arg& b) {
  return Compared(">=", a, b, [](const NodeExpr& x, const NodeExpr& y) { return LessEqual(y, x); });
}
Tensor operator==(const Arg& a, const Arg& b) { return Compared(Name(Op::kCmpEq), a, b, Equal); }
Tensor operator!=(const Arg& a, const Arg& b) { return Compared(Name(Op::kCmpNe), a, b, NotEqual); }
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
  return Binary(Op::kIDiv, {*this, other.at()}, other);
}
Tensor Tensor::maximum(const Arg& other) const {
  return OfBoth("maximum", {*this, other.at()}, other, [&](const NodeExpr& x, const NodeExpr& y) {
    if (IsBool(x->dtype)) return x | y;
    // Equal values get half the gradient each; beside a bare number, as relu's 0, they get none.
    return Max(x, other.is_tensor() || !IsFloat(x->dtype) ? y : y.Detach());
  });
}
Tensor Tensor::minimum(const Arg& other) const {
  return OfBoth("minimum", {*this, other.at()}, other, [](const NodeExpr& x, const NodeExpr& y) {
    if (IsBool(x->dtype)) return x & y;
    return IsFloat(x->dtype) ? -Max(-x, -y) : Where(x < y, x, y);  // the first keeps NaN
  });
}
Tensor Tensor::where(const Arg& a, const Arg& b) const {
  const NodeBuilder rec(a.at());
  const UOp* const condition = NodeIn(rec);
  if (!IsBool(condition->dtype))
    rec.Invalid(absl::StrCat("where: the condition is ", std::string(Name(condition->dtype)),
                             ", not bool"));
  const auto [x, y] = internal::Promoted(rec, a, b, "where");
  const Shape shape = rec.BroadcastShape(condition->shape, x->shape, "where");
  return FromNode(rec, rec.Where(rec.Broadcast(condition, shape), rec.Broadcast(x, shape),
                                 rec.Broadcast(y, shape)));
}

Tensor Tensor::cast(DType dtype, At at) const {
  return Of(*this, at, [&](const NodeExpr& x) { return x.Cast(dtype); });
}
Tensor Tensor::bitcast(DType dtype, At at) const {
  return Of(*this, at, [&](const NodeExpr& x) {
    if (ByteWidth(x->dtype) > ByteWidth(dtype)) return Narrowed(x, dtype);
    if (ByteWidth(x->dtype) < ByteWidth(dtype)) return Widened(x, dtype);
    return BitsOf(x, dtype);
  });
}
Tensor Tensor::clip(const Arg& low, const Arg& high) const { return clamp(*this, low, high); }

namespace {

NodeExpr Sign(const NodeExpr& x) {
  if (IsBool(x->dtype)) return x;
  const NodeExpr zero = x.Full(0);
  const NodeExpr positive = Where(x > zero, 1, zero);
  if (IsUnsigned(x->dtype)) return positive;
  const NodeExpr both = Where(x < zero, -1, positive);
  return IsFloat(x->dtype) ? Where(IsNan(x), x, both) : both;
}

NodeExpr Ceil(const NodeExpr& x) {
  const NodeExpr t = Trunc(x);
  return Where(t < x, t + 1, t);
}

// Ties to even.
NodeExpr Round(const NodeExpr& x) {
  const NodeExpr low = Trunc(x);
  const NodeExpr size = Abs(x - low);  // exact
  const NodeExpr is_tie = size == 0.5;
  const NodeExpr is_away = (size > 0.5) | (is_tie & IsOdd(low));
  return Where(is_away, low + Where(x < 0, -1, x.Full(1)), low);  // `low` itself keeps -0
}

NodeExpr IsInfinite(const NodeExpr& x) {
  // f8e4m3 has none, and its constant for infinity is a number.
  if (!IsFloat(x->dtype) || x->dtype == DType::kF8E4M3)
    return x.With(x.rec().Full(x.rec().ConstInt(DType::kBool, 0), x->shape));
  return Abs(x) == std::numeric_limits<double>::infinity();
}

// x (1 + tanh y) / 2 with y = sqrt(2 / pi) (x + 0.044715 x^3) (Hendrycks and Gimpel, 2016). (1 +
// tanh y) / 2 is sigmoid(2y), which loses nothing where the tanh is near -1.
NodeExpr Gelu(const NodeExpr& x) {
  const NodeExpr y = (x + x * (x * x) * 0.044715) * (2 * std::sqrt(2 / std::numbers::pi));
  return x * Sigmoid(y);
}

bool HasSign(const NodeExpr& x) { return IsFloat(x->dtype) || IsSigned(x->dtype); }

}  // namespace

// The functions of one tensor: each opens its caller's line and is a formula of x; OfFloat makes a
// float of x first.
#define OB_FUNCTION(of, name, formula)                                         \
  Tensor Tensor::name(At at) const {                                           \
    return of(*this, at, [](const NodeExpr& x) { return NodeExpr(formula); }); \
  }
// clang-format off
OB_FUNCTION(OfFloat, exp,         Exp(x))
OB_FUNCTION(OfFloat, exp2,        Exp2(x))
OB_FUNCTION(OfFloat, log,         Log(x))
OB_FUNCTION(OfFloat, log2,        Log2(x))
OB_FUNCTION(OfFloat, sin,         Sin(x))
OB_FUNCTION(OfFloat, cos,         Cos(x))
OB_FUNCTION(OfFloat, tan,         Sin(x) / Cos(x))
OB_FUNCTION(OfFloat, tanh,        Tanh(x))
OB_FUNCTION(OfFloat, sqrt,        Sqrt(x))
OB_FUNCTION(OfFloat, rsqrt,       1 / Sqrt(x))
OB_FUNCTION(OfFloat, reciprocal,  1 / x)
OB_FUNCTION(OfFloat, sigmoid,     Sigmoid(x))
OB_FUNCTION(OfFloat, silu,        x * Sigmoid(x))
OB_FUNCTION(OfFloat, gelu,        Gelu(x))
OB_FUNCTION(OfFloat, softplus,    Softplus(x))
OB_FUNCTION(Of,      neg,         -x)
OB_FUNCTION(Of,      abs,         HasSign(x) ? Abs(x) : x)
OB_FUNCTION(Of,      sign,        Sign(x))
OB_FUNCTION(Of,      trunc,       IsFloat(x->dtype) ? Trunc(x) : x)
OB_FUNCTION(Of,      floor,       IsFloat(x->dtype) ? Floor(x) : x)
OB_FUNCTION(Of,      ceil,        IsFloat(x->dtype) ? Ceil(x) : x)
OB_FUNCTION(Of,      round,       IsFloat(x->dtype) ? Round(x) : x)
OB_FUNCTION(Of,      relu,        IsBool(x->dtype) ? x : Relu(x))
OB_FUNCTION(Of,      square,      IsBool(x->dtype) ? x & x : x * x)
OB_FUNCTION(Of,      logical_not, !x.Cast(DType::kBool))
OB_FUNCTION(Of,      isnan,       IsNan(x))
OB_FUNCTION(Of,      isinf,       IsInfinite(x))
OB_FUNCTION(Of,      isfinite,    !(IsNan(x) | IsInfinite(x)).Cast(DType::kBool))
// clang-format on
#undef OB_FUNCTION

Tensor Tensor::leaky_relu(double slope, At at) const {
  return OfFloat(*this, at, [&](const NodeExpr& x) { return Where(x < 0, x * slope, x); });
}
Tensor Tensor::elu(double alpha, At at) const {
  return OfFloat(*this, at, [&](const NodeExpr& x) { return ExponentialBelowZero(x, alpha, 1); });
}
Tensor Tensor::pow(const Arg& exponent) const {
  return outboard::pow({*this, exponent.at()}, exponent);
}

}  // namespace outboard
