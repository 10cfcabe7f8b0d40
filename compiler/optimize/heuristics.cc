// Products of bf16 (cpu_matrix_unit_opts.h), kernels with panels (panel_opts.h) and blocks of
// threads (thread_opts.h) have choosers of their own; all others have vectors/vector_chooser.h.
#include "compiler/optimize/heuristics.h"

#include "compiler/optimize/apply.h"
#include "compiler/optimize/flatten.h"
#include "compiler/optimize/operands/panel_opts.h"
#include "compiler/optimize/operands/cpu_matrix_unit_opts.h"
#include "compiler/optimize/rows_in_place.h"
#include "compiler/optimize/threads/thread_opts.h"
#include "compiler/optimize/vectors/vector_chooser.h"

namespace outboard::codegen {

std::vector<Opt> HeuristicOpts(const LoopNest& kernel, const Target& target, double code_price) {
  if (kernel.empty) return {};
  if (target.block_threads > 1) return ThreadOpts(kernel, target);
  if (RowsInPlace(kernel)) return VectorChooser(kernel, target, code_price).Run();
  if (const auto opts = CpuMatrixUnitOpts(kernel, target)) return *opts;
  if (std::vector<Opt> opts = PanelOpts(kernel, target); !opts.empty()) return opts;
  VectorChooser chooser(kernel, target, code_price);
  std::vector<Opt> opts = chooser.Run();
  const int inner = chooser.LanesOfMain();
  Graph graph;
  const UOp* const flat = inner < 1 ? nullptr : FlattenRows(graph, kernel, inner, target);
  if (flat == nullptr) return opts;
  const absl::StatusOr<LoopNest> flattened = AnalyzeKernel(flat);
  if (!flattened.ok()) return opts;
  opts = VectorChooser(*flattened, target, code_price).Run();
  int64_t axis = 0;
  for (const std::vector<Axis> axes = AxesOf(kernel); axes[axis].range != inner;) ++axis;
  opts.insert(opts.begin(), {OptKind::kFlatten, axis, 0});
  return opts;
}

}  // namespace outboard::codegen
