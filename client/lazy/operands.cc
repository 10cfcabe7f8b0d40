#include "client/lazy/operands.h"

#include "absl/strings/str_cat.h"
#include "client/ops/elementwise/promote.h"

namespace outboard::internal {

const UOp* NodeOfArg(const NodeBuilder& build, const Arg& arg, DType other) {
  switch (arg.kind()) {
    case Arg::Kind::kTensor: return arg.tensor().NodeIn(build);
    case Arg::Kind::kBool: return build.Const(other, arg.float_value());
    case Arg::Kind::kFloat: return build.Const(FloatOf(other), arg.float_value());
    case Arg::Kind::kSize: {
      const Dim dim = build.DimOf(arg.size());
      if (dim.is_const()) break;
      return build.Cast(dim.expression(), IsBool(other) ? DType::kI32 : other);
    }
    default: break;
  }
  if (IsFloat(other)) return build.Const(other, arg.float_value());
  if (IsBool(other)) other = DType::kI32;
  if (arg.int_value() < IntMin(other) || arg.int_value() > IntMax(other))
    build.Invalid(absl::StrCat(arg.int_value(), " is no value of ", std::string(Name(other))));
  return build.ConstInt(other, arg.int_value());
}

namespace {

// Numbers as scalars of the other one's dtype; two tensors as they are.
Operands NodesOf(const NodeBuilder& build, const Arg& a, const Arg& b) {
  Operands x;
  if (a.is_tensor()) {
    x.a = a.tensor().NodeIn(build);
    x.b = NodeOfArg(build, b, x.a->dtype);
  } else if (b.is_tensor()) {
    x.b = b.tensor().NodeIn(build);
    x.a = NodeOfArg(build, a, x.b->dtype);
  } else {  // where(condition, 1, 0)
    const bool fraction = a.kind() == Arg::Kind::kFloat || b.kind() == Arg::Kind::kFloat;
    x.a = NodeOfArg(build, a, fraction ? DefaultFloat() : DType::kI32);
    x.b = NodeOfArg(build, b, fraction ? DefaultFloat() : DType::kI32);
  }
  return x;
}

Operands Cast(const NodeBuilder& build, const Operands& x) {
  const DType dtype = Promote(x.a->dtype, x.b->dtype);
  return {build.Cast(x.a, dtype), build.Cast(x.b, dtype)};
}

Operands Broadcast(const NodeBuilder& build, const Operands& x, std::string_view what) {
  const Shape shape = build.BroadcastShape(x.a->shape, x.b->shape, std::string(what).c_str());
  return {build.Broadcast(x.a, shape), build.Broadcast(x.b, shape)};
}

}  // namespace

Operands SameType(const NodeBuilder& build, const Arg& a, const Arg& b) {
  return Cast(build, NodesOf(build, a, b));
}

Operands Promoted(const NodeBuilder& build, const Arg& a, const Arg& b, std::string_view what) {
  return Broadcast(build, SameType(build, a, b), what);
}

Operands Comparable(const NodeBuilder& build, const Arg& a, const Arg& b, std::string_view what) {
  const Operands x = NodesOf(build, a, b);
  return Broadcast(build, HaveNoIntegerType(x.a->dtype, x.b->dtype) ? x : Cast(build, x), what);
}

const UOp* SumOfProducts(const NodeBuilder& build, const UOp* a, const UOp* b,
                         const std::vector<int64_t>& axes, std::optional<DType> dtype) {
  const DType result = dtype.value_or(a->dtype), sum = AccumulateType(result);
  // Products are as wide as the sums: what the user asks for is a result that is not rounded twice.
  // Integers wrap, so that of u64 and a signed type the sum's is as good.
  const DType wide =
      HaveNoIntegerType(a->dtype, sum) ? DType::kU64 : Promote(AccumulateType(a->dtype), sum);
  const UOp* const product = build.Mul(build.Cast(a, wide), build.Cast(b, wide));
  return build.Cast(build.Reduce(Op::kAdd, build.Cast(product, sum), axes), result);
}

const UOp* Mirror(const NodeBuilder& build, const UOp* x) {
  if (IsBool(x->dtype)) return build.Not(x);
  if (IsFloat(x->dtype)) return build.Alu(Op::kNeg, x);
  // ~x: unlike -x it has no value that is its own mirror.
  const UOp* const ones = build.ConstInt(x->dtype, WrapTo(x->dtype, -1));
  return build.Alu(Op::kXor, x, build.Full(ones, x->shape));
}

}  // namespace outboard::internal
