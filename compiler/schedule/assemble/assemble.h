// From fused kernels to a schedule: drops copies, writes in place, groups launches, plans when
// transfers are made, numbers the buffers and places temporaries. Of the buffers a PARAM is an
// input, a result of the SINK an output, the rest temporaries, also what transfers receive.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "compiler/ir/uop.h"
#include "compiler/schedule/collective/cut.h"
#include "compiler/schedule/fuse_kernels.h"
#include "compiler/schedule/in_place/policy.h"
#include "compiler/schedule/layout.h"
#include "compiler/schedule/schedule.h"
#include "compiler/target.h"

namespace outboard::schedule {

constexpr int64_t kLargeBytes = 1 << 24;  // a step of fewer is not short of memory

// The kernels that compute a graph, and what of it they do not say themselves. `cut` and `pitches`
// outlive it.
struct KernelsOfGraph {
  const CutGraph& cut;
  SentBefore sent;
  std::vector<FusedKernel> kernels;
  const RowPitches& pitches;
};

// Returns the schedule of all kernels. Inputs are written only if their PARAM slot is in `donated`.
// With OverwritePolicy::kLarge temporaries are written over each other only where that saves much
// memory. Kernels that write in place are made in `graph`. Threads: pure.
// `options`: OverwritePolicy and what a launch of several kernels has to know.
Schedule Assemble(Graph& graph, KernelsOfGraph from, const Target& target,
                  std::span<const int64_t> donated, const ScheduleOptions& options);

}  // namespace outboard::schedule
