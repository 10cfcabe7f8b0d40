#include "compiler/ir/spec/node_rules.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace outboard::spec {

Result CheckAlu(const Node& n) {
  const bool where = n.op == Op::kWhere;
  const UOp& first = *n.src[where ? 1 : 0];
  const DType t = first.dtype;
  if (t == DType::kVoid) return Broken(n.op, "a source is no value");
  if (where && n.src[0]->dtype != DType::kBool)
    return Broken(n.op, "the condition is ", Str(n.src[0]->dtype), ", not bool");
  for (size_t i = where ? 1 : 0; i < n.src.size(); ++i)
    if (n.src[i]->dtype != t)
      return Broken(n.op, "sources of types ", Str(t), " and ", Str(n.src[i]->dtype));
  for (const UOp* s : n.src)
    if (s->shape != first.shape)
      return Broken(n.op, "sources of shapes ", Str(first.shape), " and ", Str(s->shape));
  if (!n.arg.empty() && (t != DType::kF32 || n.arg.size() != 1 || n.arg[0] < 1 || n.arg[0] > 2))
    return Broken(n.op, "by a unit is of f32, and has the argument 1 or 2");
  const auto wants = [&](bool ok, const char* what) {
    return ok ? absl::OkStatus() : Broken(n.op, "needs ", what, ", not ", Str(t));
  };
  switch (n.op) {
    case Op::kExp2:
    case Op::kLog2:
    case Op::kSin:
    case Op::kSqrt:
    case Op::kTrunc:
    case Op::kExp:
    case Op::kLog:
    case Op::kCos:
    case Op::kTanh:
    case Op::kFDiv: OB_RETURN_IF_ERROR(wants(IsFloat(t), "floats")); break;
    case Op::kNeg:
    case Op::kAdd:
    case Op::kMul:
    case Op::kMax: OB_RETURN_IF_ERROR(wants(!IsBool(t), "numbers")); break;
    // Smaller floats are computed in f32 and would be rounded twice.
    case Op::kMulAcc:
      OB_RETURN_IF_ERROR(wants(t == DType::kF32 || t == DType::kF64, "f32 or f64"));
      break;
    case Op::kIDiv:
    case Op::kMod:
    case Op::kShl:
    case Op::kShr: OB_RETURN_IF_ERROR(wants(IsInt(t), "integers")); break;
    case Op::kAnd:
    case Op::kOr:
    case Op::kXor: OB_RETURN_IF_ERROR(wants(!IsFloat(t), "integers or bool")); break;
    case Op::kThreefry: OB_RETURN_IF_ERROR(wants(t == DType::kU64, "u64")); break;
    default: break;
  }
  return Typed(IsCompare(n.op) ? DType::kBool : t, first.shape);
}

Result CheckReduce(const Node& n) {
  const UOp& x = *n.src[0];
  if (n.arg.empty()) return Broken(n.op, "needs an operation");
  OB_RETURN_IF_ERROR(CheckReducer(n, n.arg[0], x.dtype));
  OB_RETURN_IF_ERROR(CheckAxes(n, n.arg.subspan(1), x.rank()));
  if (!std::is_sorted(n.arg.begin() + 1, n.arg.end())) return Broken(n.op, "axes must ascend");
  Shape shape(x.shape.begin(), x.shape.end());
  for (const int64_t axis : n.arg.subspan(1)) shape[axis] = Dim(1);
  return Inferred{x.dtype, std::move(shape)};
}

Result CheckCast(const Node& n) {
  const UOp& x = *n.src[0];
  if (x.dtype == DType::kVoid || n.dtype == DType::kVoid) return Broken(n.op, "is between values");
  if (n.op == Op::kBitcast &&
      (ByteWidth(x.dtype) != ByteWidth(n.dtype) || IsBool(x.dtype) || IsBool(n.dtype)))
    return Broken(n.op, "between ", Str(x.dtype), " and ", Str(n.dtype), ", which differ in width");
  return Typed(n.dtype, x.shape);
}

}  // namespace outboard::spec
