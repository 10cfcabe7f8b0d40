// One realize: makes lazy values the results of one Run and sends it. Used by RealizeValues and,
// with a Repetition, by a repeated step.
//
// Until all checks have passed only pins and places change, so that an error leaves every
// TensorState as it was. If Send fails, the session has ended: the new values are lost with
// everything else in it, and reading them reports that.
// Errors (thrown): RESOURCE_EXHAUSTED   a result over limits::kStoredBytesMax, or too many nodes
//                  FAILED_PRECONDITION  an input of another session; what cannot be repeated
//                  INVALID_ARGUMENT     two values for one variable
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "client/capture/step_observer.h"
#include "client/lazy/lazy_graph.h"
#include "client/tensor/variable.h"

namespace outboard::internal {

// Repeats the Run `count` times. A value that is read and then assigned in the step is carried from
// one repetition to the next.
struct Repetition {
  int64_t count = 1;
  std::optional<BoundVariable> index;  // increases by one per repetition
  absl::flat_hash_set<const TensorState*>
      stacked;  // results of these: one array, with a leading axis of `count`
  // For each buffer, the values by which the step read it; nullptr: by nodes computed before the
  // step.
  absl::flat_hash_map<const CloudBuffer*, absl::flat_hash_set<const TensorState*>> readers;
};

// Returns the node of a lazy value, imported into `lazy_graph`.
const UOp* LazyNode(TensorState& state, const std::shared_ptr<LazyGraph>& lazy_graph, const At& at);

class Realization {
 public:
  // The results of `fetch` are sent back. All values of both lists are lazy and occur once.
  Realization(std::vector<std::shared_ptr<TensorState>> values,
              const std::vector<std::shared_ptr<TensorState>>& fetch, const At& at, bool keep_pins,
              const Repetition* repetition = nullptr);

  // Call once.
  void Realize();

 private:
  void Gather();  // the roots: a node for each value that is to be computed
  const UOp* Root(const TensorState& state, const UOp* node) const;
  void Bind(const std::vector<BoundVariable>& bound);
  int64_t ValueOf(const RangedVariable& ranged) const;
  const UOp* MakeSink();                       // the graph, which lazy_graph_ encodes and hashes
  void FindInputs(const EncodedRun& encoded);  // the buffers that it reads, uploaded if need be
  void Repeat(const EncodedRun& encoded);      // what is carried and stacked; sent once for many
  void MakeResults();                          // a buffer and a handle for each root
  bool IsCarried(const TensorState& state, const std::shared_ptr<CloudBuffer>& input) const;
  void Settle();  // values are realised now; inputs that nobody else reads are donated
  void Send();    // to the session; values of `fetch` are expected from now on
  bool repeats() const { return repetition_ != nullptr && repetition_->count > 1; }
  bool IsStacked(const TensorState& state) const {
    return repetition_ != nullptr && repetition_->stacked.contains(&state);
  }

  static constexpr int kInput = -1;  // the value is an existing buffer

  const At at_;
  const bool keep_pins_;
  const Repetition* const repetition_;
  const std::shared_ptr<LazyGraph> lazy_graph_;
  const std::vector<std::shared_ptr<TensorState>> values_;
  const std::vector<std::shared_ptr<TensorState>>& fetch_;
  std::vector<int> root_of_;  // of each value: its root, or kInput
  std::vector<const UOp*> roots_;
  std::vector<BoundVariable> bound_;  // of all values
  std::shared_ptr<Session> session_;
  std::vector<std::shared_ptr<CloudBuffer>> inputs_, results_;
  session::RunRequest request_;
  const EncodedRun* encoded_ = nullptr;
};

}  // namespace outboard::internal
