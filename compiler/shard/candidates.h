// The ways in which one graph can be spread.
//
// A candidate says which values are cut to begin with (seeds); the planner does the rest. Where a
// batch comes in as an input, its dimension 0 is a seed. Where it is drawn inside of the graph
// (rows of a data set by random numbers), the heaviest sums of products are: a dimension along
// which one factor is repeated, and that factor is state, is a batch. Threads: pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "compiler/ir/uop.h"
#include "compiler/shard/plan.h"
#include "compiler/shard/shard.h"
#include "compiler/shard/sharding.h"
#include "compiler/shard/step_state.h"

namespace outboard::shard {

inline constexpr int kCandidatesMax = 12;  // planning a training step of a GPT takes milliseconds

struct SpreadCandidate {
  std::string name;
  std::vector<Sharding> params;  // by slot
  absl::flat_hash_map<const UOp*, Sharding> seeds;
  std::vector<std::optional<Sharding>> results;
  AxisSet tensor_axes = 0;  // by which products with weights are cut
  bool in_parts = false;    // state is stored so

  PlanInputs inputs() const {
    return {.params = params, .seeds = seeds, .results = results, .tensor_axes = tensor_axes};
  }
  std::string prefix() const {
    return std::string(in_parts ? "state in parts; " : "") +
           (tensor_axes == 0 ? "" : "tensor: weights; ");
  }
};

// Returns the candidates that `options.spread` allows, at least one. `params`: how inputs lie, by
// slot; missing: whole. `in_parts`: those that store state in parts, as kFsdp always does. Requires
// checked layouts.
std::vector<SpreadCandidate> CandidatesOf(const Mesh& mesh, const UOp* sink, const StepState& state,
                                          absl::Span<const Layout> params,
                                          const ShardOptions& options, bool in_parts);

// Returns the same way to spread a step whose inputs lie as `params` says.
SpreadCandidate NextStep(const Mesh& mesh, const UOp* sink, const StepState& state,
                         absl::Span<const Layout> params, const ShardOptions& options,
                         const SpreadCandidate& candidate);

// How state of this shape is stored where each device stores a part (Spread::kFsdp): cut along the
// longest dimension that divides over the mesh, or the longest; whole if none is as long as the
// mesh.
Layout StoredLayout(const Mesh& mesh, ShapeView shape);

}  // namespace outboard::shard
