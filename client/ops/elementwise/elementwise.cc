// Operations on one element at a time.
#include <cmath>
#include <limits>
#include <numbers>

#include "absl/strings/str_cat.h"
#include "client/lazy/operands.h"
#include "client/ops/elementwise/arithmetic.h"
#include "client/ops/elementwise/float_functions.h"
#include "client/tensor/tensor.h"

namespace outboard {

using internal::Less;
using internal::NodeBuilder;
using internal::OfFloat;
using internal::Operands;
using internal::Over;
using internal::Sigmoid;

namespace {

template <typename F>
Tensor Of(const Tensor& tensor, const At& at, const F& function) {
  const NodeBuilder rec(at);
  return Tensor::FromNode(rec, function(rec, tensor.NodeIn(rec)));
}

Tensor Binary(Op op, const Arg& a, const Arg& b) {
  const NodeBuilder rec(a.at());
  const Operands x = internal::Promoted(rec, a, b, Name(op));
  return Tensor::FromNode(rec, rec.Alu(op, x.a, x.b));
}

// a <= b, false for NaN.
const UOp* LessEqual(const NodeBuilder& rec, const UOp* a, const UOp* b) {
  if (!IsFloat(a->dtype)) return rec.Not(Less(rec, b, a));
  return rec.Alu(Op::kOr, Less(rec, a, b), rec.Alu(Op::kCmpEq, a, b));
}

DType UnsignedOfBytes(int bytes) {
  return bytes == 1   ? DType::kU8
         : bytes == 2 ? DType::kU16
         : bytes == 4 ? DType::kU32
                      : DType::kU64;
}
const UOp* BitsOf(const NodeBuilder& rec, const UOp* x, DType dtype) {
  return x->dtype == dtype ? x : rec.Make(Op::kBitcast, dtype, {x});
}

// How many of the narrower type's elements make one of the wider's; x has an axis, and no bool
// takes part.
int64_t PartsOf(const NodeBuilder& rec, const UOp* x, DType dtype) {
  if (x->rank() == 0 || IsBool(x->dtype) || IsBool(dtype) || dtype == DType::kVoid)
    rec.Invalid(absl::StrCat("bitcast: from ", std::string(Name(x->dtype)), " ",
                             internal::DimsToString(x->shape), " to another width, ",
                             std::string(Name(dtype))));
  const int from = ByteWidth(x->dtype), to = ByteWidth(dtype);
  return from > to ? from / to : to / from;
}

// The bit at which each part along the last axis of `parts` begins: the lowest first.
const UOp* FirstBits(const NodeBuilder& rec, DType dtype, const Shape& parts, int bits) {
  const UOp* const places = rec.IotaAlong(dtype, parts, static_cast<int>(parts.size()) - 1);
  return rec.Scale(places, bits);
}

const UOp* Narrowed(const NodeBuilder& rec, const UOp* x, DType dtype) {
  const int64_t parts = PartsOf(rec, x, dtype);
  const DType word = UnsignedOfBytes(ByteWidth(x->dtype)), part = UnsignedOfBytes(ByteWidth(dtype));
  Shape apart(x->shape.begin(), x->shape.end()), flat = apart;
  apart.emplace_back(1);
  const UOp* const column = rec.Reshape(BitsOf(rec, x, word), apart);
  apart.back() = Dim(parts);
  const UOp* const shift = FirstBits(rec, word, apart, 8 * ByteWidth(dtype));
  const UOp* const pieces = rec.Cast(rec.Alu(Op::kShr, rec.Expand(column, apart), shift), part);
  flat.back() = Dim(rec.LengthOf(x, x->rank() - 1) * parts);
  return BitsOf(rec, rec.Reshape(pieces, flat), dtype);
}

const UOp* Widened(const NodeBuilder& rec, const UOp* x, DType dtype) {
  const int64_t parts = PartsOf(rec, x, dtype), length = rec.LengthOf(x, x->rank() - 1);
  if (length % parts != 0)
    rec.Invalid(absl::StrCat("bitcast: the last axis of ", internal::DimsToString(x->shape),
                             " has no whole number of ", std::string(Name(dtype)), " in it"));
  const DType word = UnsignedOfBytes(ByteWidth(dtype)), part = UnsignedOfBytes(ByteWidth(x->dtype));
  Shape apart(x->shape.begin(), x->shape.end());
  apart.back() = Dim(length / parts);
  apart.emplace_back(parts);
  const UOp* const pieces = rec.Cast(rec.Reshape(BitsOf(rec, x, part), apart), word);
  const UOp* const shift = FirstBits(rec, word, apart, 8 * ByteWidth(x->dtype));
  const int axis = x->rank();
  const UOp* const words = rec.Reduce(Op::kAdd, rec.Alu(Op::kShl, pieces, shift), {axis});
  return BitsOf(rec, rec.Squeeze(words, {axis}), dtype);
}

}  // namespace

Tensor operator+(const Arg& a, const Arg& b) {
  const NodeBuilder rec(a.at());
  const Operands x = internal::Promoted(rec, a, b, "+");
  // The sum of truth values is whether any is true.
  return Tensor::FromNode(rec, rec.Alu(IsBool(x.a->dtype) ? Op::kOr : Op::kAdd, x.a, x.b));
}
Tensor operator-(const Arg& a, const Arg& b) {
  const NodeBuilder rec(a.at());
  const Operands x = internal::Promoted(rec, a, b, "-");
  if (IsBool(x.a->dtype)) rec.Invalid("-: bool has no difference; use ^");
  return Tensor::FromNode(rec, rec.Sub(x.a, x.b));
}
Tensor operator*(const Arg& a, const Arg& b) {
  const NodeBuilder rec(a.at());
  const Operands x = internal::Promoted(rec, a, b, "*");
  return Tensor::FromNode(rec, rec.Alu(IsBool(x.a->dtype) ? Op::kAnd : Op::kMul, x.a, x.b));
}
Tensor operator/(const Arg& a, const Arg& b) {
  const NodeBuilder rec(a.at());
  const Operands x = internal::Promoted(rec, a, b, "/");
  const DType dtype = FloatOf(x.a->dtype);
  return Tensor::FromNode(rec, rec.Alu(Op::kFDiv, rec.Cast(x.a, dtype), rec.Cast(x.b, dtype)));
}
Tensor operator%(const Arg& a, const Arg& b) { return Binary(Op::kMod, a, b); }
Tensor operator-(const Arg& a) {
  const NodeBuilder rec(a.at());
  return Tensor::FromNode(rec, rec.Alu(Op::kNeg, a.tensor().NodeIn(rec)));
}
Tensor operator<(const Arg& a, const Arg& b) { return Binary(Op::kCmpLt, a, b); }
Tensor operator>(const Arg& a, const Arg& b) {
  const NodeBuilder rec(a.at());
  const Operands x = internal::Promoted(rec, a, b, ">");
  return Tensor::FromNode(rec, Less(rec, x.b, x.a));
}
Tensor operator<=(const Arg& a, const Arg& b) {
  const NodeBuilder rec(a.at());
  const Operands x = internal::Promoted(rec, a, b, "<=");
  return Tensor::FromNode(rec, LessEqual(rec, x.a, x.b));
}
Tensor operator>=(const Arg& a, const Arg& b) {
  const NodeBuilder rec(a.at());
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
  const NodeBuilder rec(other.at());
  const Operands x = internal::Promoted(rec, Arg(*this, other.at()), other, "maximum");
  return FromNode(rec, rec.Alu(IsBool(x.a->dtype) ? Op::kOr : Op::kMax, x.a, x.b));
}
Tensor Tensor::minimum(const Arg& other) const {
  const NodeBuilder rec(other.at());
  const Operands x = internal::Promoted(rec, Arg(*this, other.at()), other, "minimum");
  if (IsBool(x.a->dtype)) return FromNode(rec, rec.Alu(Op::kAnd, x.a, x.b));
  if (!IsFloat(x.a->dtype)) return FromNode(rec, rec.Where(Less(rec, x.a, x.b), x.a, x.b));
  const UOp* const most = rec.Alu(Op::kMax, rec.Alu(Op::kNeg, x.a), rec.Alu(Op::kNeg, x.b));
  return FromNode(rec, rec.Alu(Op::kNeg, most));
}
Tensor Tensor::where(const Arg& a, const Arg& b) const {
  const NodeBuilder rec(a.at());
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
  return Of(*this, at, [&](const NodeBuilder& rec, const UOp* x) { return rec.Cast(x, dtype); });
}
Tensor Tensor::bitcast(DType dtype, At at) const {
  return Of(*this, at, [&](const NodeBuilder& rec, const UOp* x) {
    if (x->dtype == dtype) return x;
    if (ByteWidth(x->dtype) > ByteWidth(dtype)) return Narrowed(rec, x, dtype);
    if (ByteWidth(x->dtype) < ByteWidth(dtype)) return Widened(rec, x, dtype);
    return rec.Make(Op::kBitcast, dtype, {x});
  });
}
Tensor Tensor::neg(At at) const { return -Arg(*this, at); }

Tensor Tensor::exp(At at) const {
  return OfFloat(*this, at,
                 [](const NodeBuilder& rec, const UOp* x) { return rec.Alu(Op::kExp, x); });
}
Tensor Tensor::exp2(At at) const {
  return OfFloat(*this, at,
                 [](const NodeBuilder& rec, const UOp* x) { return rec.Alu(Op::kExp2, x); });
}
Tensor Tensor::log(At at) const {
  return OfFloat(*this, at,
                 [](const NodeBuilder& rec, const UOp* x) { return rec.Alu(Op::kLog, x); });
}
Tensor Tensor::log2(At at) const {
  return OfFloat(*this, at,
                 [](const NodeBuilder& rec, const UOp* x) { return rec.Alu(Op::kLog2, x); });
}
Tensor Tensor::sin(At at) const {
  return OfFloat(*this, at,
                 [](const NodeBuilder& rec, const UOp* x) { return rec.Alu(Op::kSin, x); });
}
Tensor Tensor::cos(At at) const {
  return OfFloat(*this, at,
                 [](const NodeBuilder& rec, const UOp* x) { return rec.Alu(Op::kCos, x); });
}
Tensor Tensor::tan(At at) const { return Arg(sin(at), at) / Arg(cos(at), at); }
Tensor Tensor::sqrt(At at) const {
  return OfFloat(*this, at,
                 [](const NodeBuilder& rec, const UOp* x) { return rec.Alu(Op::kSqrt, x); });
}
Tensor Tensor::rsqrt(At at) const {
  return OfFloat(*this, at, [](const NodeBuilder& rec, const UOp* x) {
    return Over(rec, rec.FullLike(x, 1), rec.Alu(Op::kSqrt, x));
  });
}
Tensor Tensor::reciprocal(At at) const {
  return OfFloat(*this, at, [](const NodeBuilder& rec, const UOp* x) {
    return Over(rec, rec.FullLike(x, 1), x);
  });
}
Tensor Tensor::square(At at) const { return Arg(*this, at) * Arg(*this, at); }
Tensor Tensor::abs(At at) const {
  return Of(*this, at, [](const NodeBuilder& rec, const UOp* x) {
    if (IsUnsigned(x->dtype) || IsBool(x->dtype)) return x;
    return rec.Alu(Op::kMax, x, rec.Alu(Op::kNeg, x));
  });
}
Tensor Tensor::sign(At at) const {
  return Of(*this, at, [](const NodeBuilder& rec, const UOp* x) {
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
  return Of(*this, at, [](const NodeBuilder& rec, const UOp* x) {
    return IsFloat(x->dtype) ? rec.Alu(Op::kTrunc, x) : x;
  });
}
Tensor Tensor::floor(At at) const {
  return Of(*this, at, [](const NodeBuilder& rec, const UOp* x) {
    if (!IsFloat(x->dtype)) return x;
    const UOp* const t = rec.Alu(Op::kTrunc, x);
    return rec.Where(Less(rec, x, t), rec.Add(t, rec.FullLike(t, -1)), t);
  });
}
Tensor Tensor::ceil(At at) const {
  return Of(*this, at, [](const NodeBuilder& rec, const UOp* x) {
    if (!IsFloat(x->dtype)) return x;
    const UOp* const t = rec.Alu(Op::kTrunc, x);
    return rec.Where(Less(rec, t, x), rec.Add(t, rec.FullLike(t, 1)), t);
  });
}

Tensor Tensor::relu(At at) const {
  return Of(*this, at, [](const NodeBuilder& rec, const UOp* x) {
    if (IsBool(x->dtype)) return x;
    return rec.Alu(Op::kMax, x, rec.FullLike(x, 0));
  });
}
Tensor Tensor::leaky_relu(double slope, At at) const {
  return OfFloat(*this, at, [&](const NodeBuilder& rec, const UOp* x) {
    return rec.Where(Less(rec, x, rec.FullLike(x, 0)), rec.Scale(x, slope), x);
  });
}
Tensor Tensor::elu(double alpha, At at) const {
  return OfFloat(*this, at, [&](const NodeBuilder& rec, const UOp* x) {
    return internal::ExponentialBelowZero(rec, x, alpha, 1);
  });
}
Tensor Tensor::sigmoid(At at) const { return OfFloat(*this, at, Sigmoid); }
Tensor Tensor::tanh(At at) const {
  return OfFloat(*this, at,
                 [](const NodeBuilder& rec, const UOp* x) { return rec.Alu(Op::kTanh, x); });
}
Tensor Tensor::silu(At at) const {
  return OfFloat(*this, at,
                 [](const NodeBuilder& rec, const UOp* x) { return rec.Mul(x, Sigmoid(rec, x)); });
}
Tensor Tensor::gelu(At at) const {
  return OfFloat(*this, at, [](const NodeBuilder& rec, const UOp* x) {
    // (1 + tanh y) / 2 is sigmoid(2y), which loses nothing where the tanh is near -1.
    const UOp* const cube = rec.Mul(x, rec.Mul(x, x));
    const UOp* const inner =
        rec.Scale(rec.Add(x, rec.Scale(cube, 0.044715)), 2 * std::sqrt(2 / std::numbers::pi));
    return rec.Mul(x, Sigmoid(rec, inner));
  });
}
Tensor Tensor::softplus(At at) const { return OfFloat(*this, at, internal::Softplus); }
Tensor Tensor::clip(const Arg& low, const Arg& high) const { return clamp(*this, low, high); }
Tensor Tensor::logical_not(At at) const {
  return Of(*this, at, [](const NodeBuilder& rec, const UOp* x) {
    return rec.Not(rec.Cast(x, DType::kBool));
  });
}
Tensor Tensor::isnan(At at) const {
  return Of(*this, at,
            [](const NodeBuilder& rec, const UOp* x) { return rec.Alu(Op::kCmpNe, x, x); });
}

Tensor Tensor::isinf(At at) const {
  return Of(*this, at, [](const NodeBuilder& rec, const UOp* x) {
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
  return Of(*this, at, [](const NodeBuilder& rec, const UOp* x) {
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

Tensor Tensor::pow(const Arg& exponent) const {
  return outboard::pow(Arg(*this, exponent.at()), exponent);
}

}  // namespace outboard
