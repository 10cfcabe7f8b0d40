// The space that a search walks: lists of Opts, and which of them lie beside each other.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "compiler/codegen/opt.h"
#include "compiler/codegen/plan.h"
#include "compiler/ir/uop.h"

namespace outboard::search {

// Raised when the space changes, so that times which were measured in another one are not taken for
// a finished search of this.
inline constexpr int kSpaceVersion = 1;

using Opts = std::vector<codegen::Opt>;

// Every legal list one step from `opts`: an amount larger or smaller, one tile axis larger at
// another's cost, an Opt more or less. Sorted by kind (the order in which kinds may stand), without
// repeats, in an order that depends on nothing else. `kernel` is a verified kernel.
// Errors: as AnalyzeKernel (RESOURCE_EXHAUSTED  a kernel over a limit)
absl::StatusOr<std::vector<Opts>> Neighbours(const UOp* kernel, const Opts& opts,
                                             const codegen::Machine& machine);

}  // namespace outboard::search
