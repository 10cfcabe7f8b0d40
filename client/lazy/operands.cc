#include "client/lazy/operands.h"

#include "absl/strings/str_cat.h"
#include "client/ops/elementwise/promote.h"

namespace outboard::internal {

const UOp* NodeOfArg(const NodeBuilder& rec, const Arg& arg, DType other) {
  switch (arg.kind()) {
    case Arg::Kind::kTensor: return arg.tensor().NodeIn(rec);
    case Arg::Kind::kBool: return rec.Const(other, arg.float_value());
    case Arg::Kind::kFloat: return rec.Const(FloatOf(other), arg.float_value());
    case Arg::Kind::kSize: {
      const Dim dim = rec.DimOf(arg.size());
      if (dim.is_const()) break;
      return rec.Cast(dim.expression(), IsBool(other) ? DType::kI32 : other);
    }
    default: break;
  }
  if (IsFloat(other)) return rec.Const(other, arg.float_value());
  if (IsBool(other)) other = DType::kI32;
  if (arg.int_value() < IntMin(other) || arg.int_value() > IntMax(other))
    rec.Invalid(absl::StrCat(arg.int_value(), " is no value of ", std::string(Name(other))));
  return rec.ConstInt(other, arg.int_value());
}

namespace {

// Numbers as scalars of the other one's dtype; two tensors as they are.
Operands NodesOf(const NodeBuilder& rec, const Arg& a, const Arg& b) {
  Operands x;
  if (a.is_tensor()) {
    x.a = a.tensor().NodeIn(rec);
    x.b = NodeOfArg(rec, b, x.a->dtype);
  } else if (b.is_tensor()) {
    x.b = b.tensor().NodeIn(rec);
    x.a = NodeOfArg(rec, a, x.b->dtype);
  } else {  // where(condition, 1, 0)
    const bool fraction = a.kind() == Arg::Kind::kFloat || b.kind() == Arg::Kind::kFloat;
    x.a = NodeOfArg(rec, a, fraction ? DefaultFloat() : DType::kI32);
    x.b = NodeOfArg(rec, b, fraction ? DefaultFloat() : DType::kI32);
  }
  return x;
}

Operands Cast(const NodeBuilder& rec, const Operands& x) {
  const DType dtype = Promote(x.a->dtype, x.b->dtype);
  return {rec.Cast(x.a, dtype), rec.Cast(x.b, dtype)};
}

Operands Broadcast(const NodeBuilder& rec, const Operands& x, std::string_view what) {
  const Shape shape = rec.BroadcastShape(x.a->shape, x.b->shape, std::string(what).c_str());
  return {rec.Broadcast(x.a, shape), rec.Broadcast(x.b, shape)};
}

}  // namespace

Operands SameType(const NodeBuilder& rec, const Arg& a, const Arg& b) {
  return Cast(rec, NodesOf(rec, a, b));
}

Operands Promoted(const NodeBuilder& rec, const Arg& a, const Arg& b, std::string_view what) {
  return Broadcast(rec, SameType(rec, a, b), what);
}

Operands Comparable(const NodeBuilder& rec, const Arg& a, const Arg& b, std::string_view what) {
  const Operands x = NodesOf(rec, a, b);
  return Broadcast(rec, HaveNoIntegerType(x.a->dtype, x.b->dtype) ? x : Cast(rec, x), what);
}

const UOp* SumOfProducts(const NodeBuilder& rec, const UOp* a, const UOp* b,
                         const std::vector<int64_t>& axes, std::optional<DType> dtype) {
  const DType result = dtype.value_or(a->dtype), sum = AccumulateType(result);
  // Products are as wide as the sums: what the user asks for is a result that is not rounded twice.
  // Integers wrap, so that of u64 and a signed type the sum's is as good.
  const DType wide =
      HaveNoIntegerType(a->dtype, sum) ? DType::kU64 : Promote(AccumulateType(a->dtype), sum);
  const UOp* const product = rec.Mul(rec.Cast(a, wide), rec.Cast(b, wide));
  return rec.Cast(rec.Reduce(Op::kAdd, rec.Cast(product, sum), axes), result);
}

const UOp* Mirror(const NodeBuilder& rec, const UOp* x) {
  if (IsBool(x->dtype)) return rec.Not(x);
  if (IsFloat(x->dtype)) return rec.Alu(Op::kNeg, x);
  // ~x: unlike -x it has no value that is its own mirror.
  return rec.Alu(Op::kXor, x, rec.Full(rec.ConstInt(x->dtype, WrapTo(x->dtype, -1)), x->shape));
}

}  // namespace outboard::internal
