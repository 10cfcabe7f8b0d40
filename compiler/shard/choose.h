// Which way to spread a graph is best.
//
// Candidates (candidates.h) are compared by predicted time, among those that have room: by that of
// the steps of a long training. A step that leaves state otherwise than it found it is judged by
// the next one, spread in the same way, which finds state so and has to have room, too.
// Threads: pure.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "compiler/ir/uop.h"
#include "compiler/shard/candidates.h"
#include "compiler/shard/plan.h"
#include "compiler/shard/shard.h"

namespace outboard::shard {

struct Prediction {
  double seconds = 0;       // of a Run
  double memory_bytes = 0;  // of a device, at most, with what is held beside the Run
  double kept_bytes = 0;    // of that, after the Run
};

struct SpreadChoice {
  SpreadCandidate candidate;
  Prediction prediction;                       // of this Run
  Prediction later;                            // of a Run that finds state as this one leaves it
  std::vector<Layout> results;                 // of this Run
  std::unique_ptr<Planner> planner = nullptr;  // holds `plan`
  const FramePlan* plan = nullptr;             // of `candidate`
};

// Returns the quickest candidate that has room by the estimate; where none has, the one that takes
// the least of those that leave what has room, since the estimate may be above what an executor
// needs. kAuto stores state in parts, too, where the quickest of the others has no room for this
// Run, or where state lies so already.
// `mesh`, `sink` and `nodes` outlive the plan.
// Errors: as Planner::Plan; RESOURCE_EXHAUSTED  what is there after the Run has no room on a
//         device: bytes needed and there, the smallest number of devices that would do
absl::StatusOr<SpreadChoice> Choose(const Mesh& mesh, const UOp* sink, GraphNodes& nodes,
                                    absl::Span<const Layout> params, const ShardOptions& options);

}  // namespace outboard::shard
