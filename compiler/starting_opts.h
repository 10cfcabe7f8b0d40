// What a kernel is planned as, and the Opts that it may begin with: for those that compile it, and
// for the search, which starts from what they would choose.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "compiler/ir/uop.h"
#include "compiler/optimize/opt.h"
#include "compiler/target.h"

namespace outboard {

// The kernel as it is planned for the target: with gates where its loads are not proved to be in
// range, and without functions of f64 but on OpenCL devices. Errors: as proof::GuardUnproved.
absl::StatusOr<const UOp*> GuardedKernel(Graph& graph, const UOp* sink, const Target& target);

// The kernel that Opts other than matrix units' are of: as GuardedKernel, and without stores of
// sums (kernel/row_sums.h). Errors: as GuardedKernel and codegen::WithoutRowSums.
absl::StatusOr<const UOp*> PlainKernel(Graph& graph, const UOp* sink, const Target& target);

// Lists of Opts, the one that CompileKernel prefers first: by a GPU's matrix units where that is
// possible, then by warpgroups that gather, where they can but are not estimated to be faster; then
// the heuristic's, on a GPU the empty list last. A list of matrix units may turn out not to
// compile. Of several copies, `target` is the share of one (ShareOf in compiler/copies.h).
// Errors: INVALID_ARGUMENT  no kernel
absl::StatusOr<std::vector<std::vector<codegen::Opt>>> StartingOpts(const UOp* sink,
                                                                    const Target& target);

}  // namespace outboard
