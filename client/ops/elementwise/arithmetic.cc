#include "client/ops/elementwise/arithmetic.h"

#include <limits>

#include "absl/strings/str_cat.h"
#include "client/lazy/operands.h"
#include "client/ops/elementwise/float_functions.h"

namespace outboard {

using internal::IsBelow;
using internal::Less;
using internal::Neg;
using internal::NodeBuilder;
using internal::Operands;
using internal::Over;
using internal::Plus;

namespace {

// What is divided: no bool. The quotient of narrow floats is rounded to a whole number in f32, lest
// it be rounded twice.
struct Division {
  DType dtype;  // of the result
  const UOp *a, *b;

  Division(const NodeBuilder& rec, const Arg& left, const Arg& right, const char* what) {
    const Operands x = internal::Promoted(rec, left, right, what);
    dtype = x.a->dtype;
    if (IsBool(dtype)) rec.Invalid(absl::StrCat(what, ": needs numbers, not bool"));
    a = rec.Cast(x.a, AccumulateType(dtype));
    b = rec.Cast(x.b, AccumulateType(dtype));
  }
  Tensor Result(const NodeBuilder& rec, const UOp* y) const {
    return Tensor::FromNode(rec, rec.Cast(y, dtype));
  }
};

Operands Floats(const NodeBuilder& rec, const Arg& a, const Arg& b, const char* what) {
  const Operands x = internal::Promoted(rec, a, b, what);
  const DType dtype = FloatOf(x.a->dtype);
  return {rec.Cast(x.a, dtype), rec.Cast(x.b, dtype)};
}

// Where the quotient of integers was rounded up: the remainder has not the sign of b.
const UOp* RoundedUp(const NodeBuilder& rec, const UOp* remainder, const UOp* b) {
  const UOp* const zero = rec.FullLike(b, 0);
  return rec.Where(Less(rec, b, zero), Less(rec, zero, remainder),
                   rec.Alu(Op::kAnd, Less(rec, remainder, zero), Less(rec, zero, b)));
}

const UOp* FloorOf(const NodeBuilder& rec, const UOp* x) {
  const UOp* const t = rec.Alu(Op::kTrunc, x);
  return rec.Where(Less(rec, x, t), Plus(rec, t, -1), t);
}

const UOp* Is(const NodeBuilder& rec, const UOp* x, double value) {
  return rec.Alu(Op::kCmpEq, x, rec.FullLike(x, value));
}

constexpr double kInfinity = std::numeric_limits<double>::infinity();

}  // namespace

Tensor floor_div(const Arg& a, const Arg& b) {
  const NodeBuilder rec(a.at());
  const Division x(rec, a, b, "floor_div");
  if (IsFloat(x.dtype)) return x.Result(rec, FloorOf(rec, Over(rec, x.a, x.b)));
  const UOp* const quotient = rec.Alu(Op::kIDiv, x.a, x.b);
  if (IsUnsigned(x.dtype)) return x.Result(rec, quotient);
  const UOp* const up = RoundedUp(rec, rec.Alu(Op::kMod, x.a, x.b), x.b);
  return x.Result(rec, rec.Where(up, Plus(rec, quotient, -1), quotient));
}

Tensor floor_mod(const Arg& a, const Arg& b) {
  const NodeBuilder rec(a.at());
  const Division x(rec, a, b, "floor_mod");
  if (IsFloat(x.dtype))
    return x.Result(rec, rec.Sub(x.a, rec.Mul(FloorOf(rec, Over(rec, x.a, x.b)), x.b)));
  const UOp* const remainder = rec.Alu(Op::kMod, x.a, x.b);
  if (IsUnsigned(x.dtype)) return x.Result(rec, remainder);
  const UOp* const up = RoundedUp(rec, remainder, x.b);
  return x.Result(rec, rec.Where(up, rec.Add(remainder, x.b), remainder));
}

Tensor trunc_div(const Arg& a, const Arg& b) {
  const NodeBuilder rec(a.at());
  const Division x(rec, a, b, "trunc_div");
  return x.Result(rec, IsFloat(x.dtype) ? rec.Alu(Op::kTrunc, Over(rec, x.a, x.b))
                                        : rec.Alu(Op::kIDiv, x.a, x.b));
}

Tensor fmod(const Arg& a, const Arg& b) {
  const NodeBuilder rec(a.at());
  const Division x(rec, a, b, "fmod");
  if (!IsFloat(x.dtype)) return x.Result(rec, rec.Alu(Op::kMod, x.a, x.b));
  const UOp* const quotient = rec.Alu(Op::kTrunc, Over(rec, x.a, x.b));
  return x.Result(rec, rec.Sub(x.a, rec.Mul(quotient, x.b)));
}

Tensor copysign(const Arg& a, const Arg& b) {
  const NodeBuilder rec(a.at());
  const auto [x, y] = internal::Promoted(rec, a, b, "copysign");
  if (!IsFloat(x->dtype) && !IsSigned(x->dtype)) return Tensor::FromNode(rec, x);
  const UOp* negative = IsBelow(rec, y, 0);
  if (IsFloat(x->dtype))  // 1 / -0 is -inf
    negative = rec.Alu(Op::kOr, negative, IsBelow(rec, Over(rec, rec.FullLike(y, 1), y), 0));
  const UOp* const size = rec.Alu(Op::kMax, x, Neg(rec, x));
  return Tensor::FromNode(rec, rec.Where(negative, Neg(rec, size), size));
}

// By the larger one and their distance, which no exponential overflows. Two equal infinities have a
// distance of 0.
Tensor logaddexp(const Arg& a, const Arg& b) {
  const NodeBuilder rec(a.at());
  const auto [x, y] = Floats(rec, a, b, "logaddexp");
  const UOp* const top = rec.Alu(Op::kMax, x, y);
  const UOp* const infinite = rec.Alu(Op::kOr, Is(rec, top, kInfinity), Is(rec, top, -kInfinity));
  const UOp* const apart = rec.Where(infinite, rec.FullLike(x, 0), rec.Sub(x, y));
  const UOp* const closer = Neg(rec, rec.Alu(Op::kMax, apart, Neg(rec, apart)));
  return Tensor::FromNode(rec, rec.Add(top, internal::Softplus(rec, closer)));
}

Tensor lerp(const Tensor& start, const Arg& end, const Arg& weight) {
  const At at = end.at();
  const DType pixel = DType::kU8;
  const bool picture = weight.is_tensor() && start.dtype(at) == pixel && end.is_tensor() &&
                       end.tensor().dtype(at) == pixel;
  const NodeBuilder rec(at);
  const Operands ends = internal::Promoted(rec, {start, at}, end, "lerp");
  const UOp* const share = internal::NodeOfArg(rec, weight, ends.a->dtype);
  const std::optional<DType> dtype = Promote(ends.a->dtype, share->dtype);
  if (!dtype || IsBool(*dtype))
    rec.Invalid("lerp: needs numbers, not bool, of types that go together");
  const DType wide = picture ? DType::kF32 : *dtype;
  const Tensor from = Tensor::FromNode(rec, rec.Cast(ends.a, wide));
  const Tensor to = Tensor::FromNode(rec, rec.Cast(ends.b, wide));
  const Tensor way = Arg(Tensor(Arg(to, at) - Arg(from, at)), at) *
                     Arg(Tensor::FromNode(rec, rec.Cast(share, wide)), at);
  const Tensor place = Arg(from, at) + Arg(way, at);
  return picture ? place.round(at).cast(pixel, at) : place;
}

Tensor clamp(const Tensor& x, const std::optional<Arg>& low, const std::optional<Arg>& high,
             At at) {
  if (!low && !high) ThrowInvalid(at, "clamp: neither a lowest nor a highest value");
  const At line = low ? low->at() : high->at();
  if (IsBool(x.dtype(line))) ThrowInvalid(line, "clip: needs numbers, not bool");
  // By choosing, so that NaN stays, and a value on the edge has its gradient.
  Tensor y = x;
  if (low) y = Tensor(Arg(y, line) < *low).where(*low, Arg(y, line));
  if (high) y = Tensor(Arg(y, line) > *high).where(*high, Arg(y, line));
  return y;
}

Tensor isclose(const Arg& a, const Arg& b, double rtol, double atol, bool equal_nan) {
  const NodeBuilder rec(a.at());
  const Operands given = internal::Promoted(rec, a, b, "isclose");
  // Integers of more than 16 bits are no f32.
  const DType dtype = IsFloat(given.a->dtype) ? AccumulateType(given.a->dtype) : DType::kF64;
  const UOp *const x = rec.Cast(given.a, dtype), *const y = rec.Cast(given.b, dtype);
  const auto size = [&](const UOp* of) { return rec.Alu(Op::kMax, of, Neg(rec, of)); };
  const UOp* const slack = Plus(rec, rec.Scale(size(y), rtol), atol);
  const UOp* const apart = Less(rec, slack, size(rec.Sub(x, y)));
  // From an infinity everything is within an infinite slack.
  const UOp* const finite =
      rec.Alu(Op::kAnd, IsBelow(rec, size(x), kInfinity), IsBelow(rec, size(y), kInfinity));
  const UOp* close = rec.Alu(Op::kOr, rec.Alu(Op::kAnd, finite, rec.Not(apart)),
                             rec.Alu(Op::kCmpEq, given.a, given.b));
  if (equal_nan)
    close = rec.Alu(Op::kOr, close,
                    rec.Alu(Op::kAnd, rec.Alu(Op::kCmpNe, x, x), rec.Alu(Op::kCmpNe, y, y)));
  return Tensor::FromNode(rec, close);
}

Tensor allclose(const Arg& a, const Arg& b, double rtol, double atol, bool equal_nan) {
  return isclose(a, b, rtol, atol, equal_nan).all({}, false, a.at());
}

Tensor isinf(const Tensor& x, bool detect_positive, bool detect_negative, At at) {
  const Tensor both = x.isinf(at);
  if (detect_positive && detect_negative) return both;
  const NodeBuilder rec(at);
  const UOp* const node = x.NodeIn(rec);
  const UOp* const no = rec.Full(rec.ConstInt(DType::kBool, 0), node->shape);
  if (!IsFloat(node->dtype) || !(detect_positive || detect_negative))
    return Tensor::FromNode(rec, no);
  const UOp* const zero = rec.FullLike(node, 0);
  const UOp* const side = detect_positive ? Less(rec, zero, node) : Less(rec, node, zero);
  return Tensor::FromNode(rec, rec.Alu(Op::kAnd, both.NodeIn(rec), side));
}

Tensor bitwise_not(const Tensor& x, At at) {
  const NodeBuilder rec(at);
  const UOp* const node = x.NodeIn(rec);
  if (IsFloat(node->dtype))
    rec.Invalid(
        absl::StrCat("bitwise_not: of integers or bool, not ", std::string(Name(node->dtype))));
  if (IsBool(node->dtype)) return Tensor::FromNode(rec, rec.Not(node));
  const UOp* const ones = rec.ConstInt(node->dtype, WrapTo(node->dtype, -1));
  return Tensor::FromNode(rec, rec.Alu(Op::kXor, node, rec.Full(ones, node->shape)));
}

Tensor threefry(const Arg& counter, const Arg& key) {
  const NodeBuilder rec(counter.at());
  const Operands x = internal::Promoted(rec, counter, key, "threefry");
  if (x.a->dtype != DType::kU64)
    rec.Invalid(absl::StrCat("threefry: of u64, not ", std::string(Name(x.a->dtype))));
  return Tensor::FromNode(rec, rec.Alu(Op::kThreefry, x.a, x.b));
}

}  // namespace outboard
