// The evaluation of a graph by one rank, which stops at every collective. One device alone has no
// collectives and runs to its end (interpret.h); a group's ranks meet at each (interpret_group.h).
//
// A run is a stack of frames: the graph, and above it the FUNCTION bodies that are being called. A
// frame walks its nodes in PostOrder and holds their values until their last use; a CALL pushes a
// frame, and the end of a frame hands its value to the one below. Nothing recurses over the graph.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "compiler/ir/host_tensor.h"
#include "compiler/ir/uop.h"
#include "compiler/reference/value.h"

namespace outboard::reference {

// The nodes of a graph or body in the order to evaluate them, with sources by their places in it.
struct WalkPlan {
  struct Step {
    const UOp* node;
    std::vector<int> sources;
    std::vector<int> done;  // places that nothing after this step reads
  };
  std::vector<Step> steps;
};

// The plans of a graph and of the bodies that it calls, each made on first use. Ranks share them.
class WalkPlans {
 public:
  const WalkPlan* Of(const UOp* root);

 private:
  absl::flat_hash_map<const UOp*, std::unique_ptr<WalkPlan>> plans_;
};

// Errors of all methods: as of Interpret (interpret.h). After one the run is useless.
class GraphRun {
 public:
  // `params`, `bindings`, `plans` and `budget` outlive the run; `stored_elements` is that of
  // InterpretOptions.
  GraphRun(std::span<const HostTensor> params, std::span<const Binding> bindings,
           int64_t stored_elements, WalkPlans* plans, Budget* budget)
      : params_(params),
        bindings_(bindings),
        stored_elements_(stored_elements),
        plans_(plans),
        budget_(budget) {}

  absl::Status Begin(const UOp* sink);

  // Evaluates up to the next collective and returns it; nullptr at the end of the graph.
  absl::StatusOr<const UOp*> Advance();

  // The source of the collective that Advance has returned, in memory.
  absl::StatusOr<ValueRef> CollectiveSource();
  // Goes on with `value` as the value of that collective.
  void FinishCollective(ValueRef value) { Finish(frames_.back(), std::move(value)); }

  // The values of the SINK's sources. Requires that Advance has returned nullptr.
  absl::StatusOr<std::vector<HostTensor>> Results() const;

 private:
  struct Frame {
    const WalkPlan* plan;
    // Of the PARAMs; the outermost frame takes the caller's tensors.
    std::vector<ValueRef> arguments;
    std::vector<ValueRef> values;
    size_t next = 0;
  };

  void Push(const UOp* root, std::vector<ValueRef> arguments);
  static void Finish(Frame& frame, ValueRef value);
  absl::StatusOr<ValueRef> Evaluate(const Frame& frame, const WalkPlan::Step& step);
  absl::Status Settle(Value& value);
  static absl::Status ReadArg(const Frame& frame, const WalkPlan::Step& step, Value& value);
  absl::Status BindVar(Value& value);
  absl::Status SetDims(Value& value);
  absl::Status TakeParam(Value& value);

  std::span<const HostTensor> params_;
  std::span<const Binding> bindings_;
  int64_t stored_elements_;
  WalkPlans* plans_;
  Budget* budget_;
  std::vector<Frame> frames_;
  ValueRef result_;
};

}  // namespace outboard::reference
