// Decides how every value of a graph lies on the mesh, before anything is written.
//
// Each node has two shardings: where its operation leaves it (raw) and where its users find it
// (home). They differ for a sum that is settled at once because several users want it whole. Passes
// over the graph go forward (a node lies as its sources do) and back (a value that all users want
// cut is computed cut), until nothing changes or kPlanRoundsMax is reached; any state in between is
// right, since what lies otherwise than a user wants is moved. Bodies of FUNCTIONs are planned once
// for each set of layouts of their arguments. Threads: a Planner belongs to one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "compiler/ir/limits.h"
#include "compiler/ir/uop.h"
#include "compiler/shard/rules.h"
#include "compiler/shard/sharding.h"

namespace outboard::shard {

inline constexpr int kPlanRoundsMax = 6;    // two are enough for training steps
inline constexpr int kNestedCallsMax = 32;  // deeper calls run whole on each device

struct NodePlan {
  Sharding raw;
  Sharding home;
};

// The nodes of a graph, or of the body of a FUNCTION, and where each finds its sources: the same
// for every plan of it, so made once for all candidates.
struct FrameNodes {
  std::vector<const UOp*> nodes;  // PostOrder, not into functions
  absl::flat_hash_map<const UOp*, int> place;
  // Of node i: places of its own sources, source_places[first_source[i]] and on. None of a
  // FUNCTION.
  std::vector<int> first_source, source_places;
  std::vector<bool> is_gather;  // of REDUCEs, as IsGather (ir/sums/gather.h) has it
  // Of REDUCEs: whether the value passes from one kernel to another. A gather is computed where it
  // is read; one that adds up what another sum leaves, as the gradient of a window does, is
  // computed with that sum, and only its own result is stored.
  std::vector<bool> is_stored;
  // Whether a sum of products, or a call, reads the value, directly or not.
  std::vector<bool> feeds_product;

  int64_t parts = 0;  // nodes, their sources and their dimensions, as limits.h counts them

  explicit FrameNodes(const UOp* root);
  int count() const { return static_cast<int>(nodes.size()); }
  absl::Span<const int> SourcesOf(int at) const {
    return absl::MakeConstSpan(source_places)
        .subspan(first_source[at], first_source[at + 1] - first_source[at]);
  }

 private:
  void NoteStored();
};

// Those of a graph and of all its bodies, as they are asked for. Threads: one.
class GraphNodes {
 public:
  const FrameNodes& Of(const UOp* root);
  // That all plans of the graph have together, and the most that they are to have.
  int64_t compared_parts = 0, compared_parts_max = limits::kComparedPartsMax;

 private:
  absl::flat_hash_map<const UOp*, std::unique_ptr<const FrameNodes>> frames_;
};

// Where each value of a tuple lies. Many nodes may have the same one.
using TupleShardings = std::shared_ptr<const std::vector<Sharding>>;

// The plan of the graph itself, or of the body of a FUNCTION for some shardings of its arguments.
struct FramePlan {
  const FrameNodes* frame = nullptr;
  std::vector<NodePlan> plans;  // by place, as all of these
  // By place, of tuple-valued nodes. A call has its body's.
  absl::flat_hash_map<int, TupleShardings> tuples;
  absl::flat_hash_map<int, const FramePlan*> bodies;  // of CALLs; nullptr: it runs whole
  std::vector<Sharding> params;                       // of a body: by slot
  std::vector<Sharding> results;                      // of the root's values

  // Where the own sources of a node lie. Valid until this is called again, or plans change.
  SourceShardings HomesOfSources(int at) const;

 private:
  mutable std::vector<const Sharding*> homes_;
};

// Shardings that somebody else decides.
struct PlanInputs {
  absl::Span<const Sharding> params;                // by slot, of the graph or body
  absl::flat_hash_map<const UOp*, Sharding> seeds;  // nodes that are to lie so
  std::vector<std::optional<Sharding>> results;     // of a SINK; missing: where they are
  AxisSet tensor_axes = 0;  // by which products with weights are cut, unless they are already
};

class Planner {
 public:
  // `sink`: the whole graph, in which errors number their nodes. `nodes`, of that graph, lives as
  // long as the plans.
  Planner(const Mesh& mesh, const UOp* sink, GraphNodes& nodes)
      : mesh_(mesh), sink_(sink), nodes_(nodes) {}

  // Plans the graph under `root`: a SINK, or the body of a FUNCTION at `depth` calls.
  // Errors: INVALID_ARGUMENT, UNIMPLEMENTED: a LAYOUT that the mesh or the value does not have;
  // names the node.
  //         RESOURCE_EXHAUSTED: bodies that are planned for too many sets of layouts
  absl::StatusOr<const FramePlan*> Plan(const UOp* root, const PlanInputs& inputs, int depth = 0);

 private:
  // A home that the way back has chosen.
  struct Choice {
    Sharding home;
    bool is_made = false;
    bool settles = false;  // a sum, made where it is and then moved to `home`
  };
  using Choices = std::vector<Choice>;  // by place
  // What the users of a node want of it.
  struct Wanted {
    Sharding first;
    Sharding settled;  // the last of those who want what it adds to be added
    bool is_any = false, same = true;
    bool settles = false, settles_alike = true;

    void Add(const Sharding& p, AxisSet raw_partial);
  };
  using Seeds = std::vector<std::pair<int, const Sharding*>>;  // by place, in order

  absl::Status ForwardPass(FramePlan& frame, const PlanInputs& inputs, const Seeds& seeds,
                           const Choices& choices, int depth);
  // Returns whether a choice has changed.
  bool BackwardPass(FramePlan& frame, const PlanInputs& inputs, const Seeds& seeds,
                    Choices& choices);
  absl::StatusOr<Sharding> OfLayout(const UOp* node, const Sharding& source) const;
  absl::Status PlanCall(FramePlan& frame, int at, AxisSet tensor_axes, int depth);

  const Mesh& mesh_;
  const UOp* const sink_;
  GraphNodes& nodes_;
  std::vector<std::unique_ptr<FramePlan>> frames_;
  absl::flat_hash_map<std::pair<const UOp*, std::vector<Sharding>>, const FramePlan*> bodies_;
  // By FUNCTION: the values of calls that run whole.
  absl::flat_hash_map<const UOp*, TupleShardings> whole_;
  std::vector<Wanted> wanted_;  // by place, of the pass at hand
  int64_t planned_parts_ = 0;
};

}  // namespace outboard::shard
