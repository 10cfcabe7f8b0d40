#include "compiler/ir/spec/node_rules.h"

#include <algorithm>

#include "compiler/ir/limits.h"

namespace outboard::spec {

absl::Status CheckShape(Op op, ShapeView shape) {
  if (static_cast<int64_t>(shape.size()) > limits::kRankMax)
    return Broken(op, "rank ", shape.size(), " is over the limit of ", limits::kRankMax);
  __int128 elements = 1;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i].min() < 0)
      return Broken(op, "dimension ", i, " of ", Str(shape), " can be negative");
    if (shape[i].max() > limits::kDimMax)
      return Broken(op, "dimension ", i, " of ", Str(shape), " is over the limit of ",
                    limits::kDimMax);
    elements *= std::max<int64_t>(shape[i].max(), 1);
    if (elements >= limits::kVirtualElementsMax)
      return Broken(op, "the shape ", Str(shape), " has 2^62 elements or more");
  }
  return absl::OkStatus();
}

absl::Status CheckAxes(const Node& n, absl::Span<const int64_t> axes, int rank) {
  uint32_t seen = 0;
  for (const int64_t axis : axes) {
    if (axis < 0 || axis >= rank) return Broken(n.op, "axis ", axis, " is not one of rank ", rank);
    if (seen >> axis & 1) return Broken(n.op, "axis ", axis, " is given twice");
    seen |= 1u << axis;
  }
  return absl::OkStatus();
}

absl::Status CheckReducer(const Node& n, int64_t code, DType dtype) {
  if (code < 0 || code >= kOpCodeMax || !IsReducer(static_cast<Op>(code)))
    return Broken(n.op, "the operation must be ADD, MUL or MAX");
  if (IsBool(dtype) || dtype == DType::kVoid)
    return Broken(n.op, "needs numbers, not ", Str(dtype));
  return absl::OkStatus();
}

absl::StatusOr<Shape> ReadDims(Op op, absl::Span<const int64_t> arg, size_t begin, Sources extra) {
  Shape dims;
  size_t next = 0;
  for (size_t i = begin; i < arg.size(); ++i) {
    if (arg[i] != kSymbolicDim) {
      dims.emplace_back(arg[i]);
      continue;
    }
    if (next >= extra.size()) return Broken(op, "a symbolic dimension has no source");
    const UOp* const expression = extra[next++];
    if (expression->dtype != DType::kI64 || !expression->shape.empty())
      return Broken(op, "a symbolic dimension must be an i64 scalar");
    if (expression->is_const())
      return Broken(op, "a dimension that is a number must be written as one");
    if (!expression->of_vars) return Broken(op, "a dimension may depend on VARs only, not on data");
    dims.push_back(Dim(expression));
  }
  if (next != extra.size()) return Broken(op, "has ", extra.size() - next, " sources too many");
  return dims;
}

}  // namespace outboard::spec
