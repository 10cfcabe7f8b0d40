#include "compiler/ir/spec/node_rules.h"

#include <utility>

#include "base/check.h"
#include "compiler/ir/limits.h"

namespace outboard::spec {
namespace {

// A dimension of a collective, which must be a number: parts on other devices are as long.
absl::StatusOr<int64_t> CutLength(const Node& n, int64_t dim) {
  const UOp& x = *n.src[0];
  if (dim < 0 || dim >= x.rank())
    return Broken(n.op, "dimension ", dim, " is not one of rank ", x.rank());
  if (!x.shape[dim].is_const())
    return Broken(n.op, "dimension ", dim, " of ", Str(x.shape), " must have a fixed length");
  return x.shape[dim].value();
}

absl::Status CheckDivides(const Node& n, int64_t dim, int64_t length, int64_t count) {
  if (length % count == 0) return absl::OkStatus();
  return Broken(n.op, "dimension ", dim, " of length ", length, " does not divide over ", count);
}

}  // namespace

Result CheckLayout(const Node& n) {
  const UOp& x = *n.src[0];
  if (x.dtype == DType::kVoid) return Broken(n.op, "the source is no value");
  if (n.arg.size() != 2) return Broken(n.op, "needs a mesh axis and a dimension");
  if (n.arg[0] < -1 || n.arg[0] >= limits::kMeshAxesMax)
    return Broken(n.op, "mesh axis ", n.arg[0], " is not in -1..", limits::kMeshAxesMax - 1);
  if (n.arg[1] < -1 || n.arg[1] >= x.rank())
    return Broken(n.op, "dimension ", n.arg[1], " is not one of rank ", x.rank());
  return Typed(x.dtype, x.shape);
}

Result CheckCollective(const Node& n) {
  const UOp& x = *n.src[0];
  if (x.dtype == DType::kVoid) return Broken(n.op, "the source is no value");
  const bool two = n.op == Op::kReduceScatter || n.op == Op::kAllToAll;
  if (n.arg.size() != (two ? 4 : 3))
    return Broken(n.op, "needs ", two ? 4 : 3, " numbers, not ", n.arg.size());
  const int64_t count = n.arg[n.arg.size() - 2], stride = n.arg[n.arg.size() - 1];
  if (count < 1 || count > limits::kRanksMax || stride < 1 || stride > limits::kRanksMax)
    return Broken(n.op, "a group of ", count, " ranks with stride ", stride, " is not in 1..",
                  limits::kRanksMax);
  Shape shape(x.shape.begin(), x.shape.end());
  switch (n.op) {
    case Op::kUnshard: {
      OB_ASSIGN_OR_RETURN(const int64_t length, CutLength(n, n.arg[0]));
      shape[n.arg[0]] = Dim(length * count);  // fits: both are far below 2^32
      break;
    }
    case Op::kReduceScatter: {
      OB_RETURN_IF_ERROR(CheckReducer(n, n.arg[0], x.dtype));
      OB_ASSIGN_OR_RETURN(const int64_t length, CutLength(n, n.arg[1]));
      OB_RETURN_IF_ERROR(CheckDivides(n, n.arg[1], length, count));
      shape[n.arg[1]] = Dim(length / count);
      break;
    }
    case Op::kAllReduce: OB_RETURN_IF_ERROR(CheckReducer(n, n.arg[0], x.dtype)); break;
    case Op::kAllToAll: {
      OB_ASSIGN_OR_RETURN(const int64_t cut, CutLength(n, n.arg[0]));
      OB_ASSIGN_OR_RETURN(const int64_t join, CutLength(n, n.arg[1]));
      OB_RETURN_IF_ERROR(CheckDivides(n, n.arg[0], cut, count));
      if (n.arg[0] != n.arg[1]) {
        shape[n.arg[0]] = Dim(cut / count);
        shape[n.arg[1]] = Dim(join * count);
      }
      break;
    }
    default:  // kCopy
      if (n.arg[0] < 0 || n.arg[0] >= count)
        return Broken(n.op, "root ", n.arg[0], " is not in 0..", count - 1);
  }
  return Inferred{x.dtype, std::move(shape)};
}

}  // namespace outboard::spec
