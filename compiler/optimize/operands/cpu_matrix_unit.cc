#include "compiler/optimize/operands/cpu_matrix_unit.h"

#include <utility>

#include "compiler/ir/accessors.h"
#include "compiler/optimize/operands/staging.h"

namespace outboard::codegen {
namespace {

bool In(RangeSet set, int range) { return set >> range & 1; }

// The LOAD of bf16 that `node` widens; nullptr for anything else.
const UOp* WidenedLoad(const UOp* node) {
  if (node->op != Op::kCast || node->src[0]->op != Op::kLoad) return nullptr;
  return node->src[0]->dtype == DType::kBF16 ? node->src[0] : nullptr;
}

}  // namespace

absl::StatusOr<CpuMatrixUnit> FindCpuMatrixUnit(const LoopNest& kernel, const ReduceGroup& group,
                                                int row_range, int column_range, int inner_range) {
  const auto illegal = [](const char* why) { return absl::InvalidArgumentError(why); };
  if (kernel.IsNested(group)) return illegal("a reduction inside of another one is left plain");
  if (group.nodes.size() != 1) return illegal("several reductions share the loops");
  const UOp* const node = group.nodes[0];
  if (ReduceOf(node).op() != Op::kAdd || node->dtype != DType::kF32)
    return illegal("not a sum in f32");
  const UOp* const product = node->src[0];
  if (product->op != Op::kMul) return illegal("not a sum of products");
  CpuMatrixUnit core;
  core.rows = WidenedLoad(product->src[0]);
  core.columns = WidenedLoad(product->src[1]);
  if (core.rows == nullptr || core.columns == nullptr)
    return illegal("not a product of two loads of bf16");
  if (!In(kernel.DepsOf(core.rows), row_range)) std::swap(core.rows, core.columns);
  const RangeSet rows = kernel.DepsOf(core.rows), columns = kernel.DepsOf(core.columns);
  if (!In(rows, row_range) || In(columns, row_range))
    return illegal("rows must move one operand alone");
  if (!In(columns, column_range) || In(rows, column_range))
    return illegal("columns must move the other operand alone");
  if (!In(rows, inner_range) || !In(columns, inner_range))
    return illegal("the reduced axis must move both operands");
  // Of a step only the part before the end counts, which zeros in the copies would have to say.
  if (kernel.ranges[inner_range].end() != nullptr)
    return illegal("the reduced axis has no fixed end");
  for (const UOp* load : {core.rows, core.columns})
    if (absl::Status status = CanStage(kernel, load); !status.ok()) return status;
  core.row_range = row_range;
  core.column_range = column_range;
  core.inner_range = inner_range;
  return core;
}

}  // namespace outboard::codegen
