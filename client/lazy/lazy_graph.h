// What stands behind a Tensor: a node that is still to be computed, or a buffer in the cloud.
//
// Invariants
//   1. A TensorState is empty, lazy (recording and node) or realised (storage). assign turns it
//      lazy again and remembers the storage that it replaces.
//   2. A BUFFER node names a place of its LazyGraph, not a handle. While a live lazy TensorState
//      can reach the node, the place pins the storage behind it, so a buffer is released no sooner
//      than the last TensorState that can still read it.
//   3. A storage that replaces another whose last owner it was takes over its place. So the graph
//      of a training step is the same nodes every time: building it again is look-ups, and its
//      encoding is cached by its root.
//   4. Pins are dropped and places become free in Unpin, which realize calls; nothing else forgets
//      a place.
//   5. A lazy TensorState is in the list of its LazyGraph, a realised one in that of its
//      CloudBuffer: so the Values that a graph reads are found from its nodes.
//
// Threads: each thread records into a LazyGraph of its own. A Tensor may move to another thread,
// but two threads must not use one Tensor, or Tensors that were computed from each other and not
// realised, at the same time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <queue>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "client/lazy/deferred_upload.h"
#include "client/lazy/pending_value.h"
#include "client/session/current_session.h"
#include "client/tensor/error.h"
#include "client/tensor/run_origin.h"
#include "client/tensor/session_scope.h"
#include "client/tensor/variable.h"
#include "compiler/ir/accessors.h"
#include "compiler/ir/host_tensor.h"
#include "compiler/ir/uop.h"

namespace outboard::internal {

// A thread starts a new LazyGraph after a realize that leaves more nodes than this in the old one.
inline constexpr int64_t kRecordingNodesMax = 1 << 17;
// Also between two realizes, when it has recorded so many; below limits::kGraphNodesMax.
inline constexpr int64_t kUnrealisedNodesMax = 1 << 19;

class MadeValues;  // recorded_step.h
class LazyGraph;
struct PartOf;  // part_of.h
struct TensorState;

// A buffer in the cloud and, once that was asked for, its content. Released with its last owner.
struct CloudBuffer {
  std::shared_ptr<Session> session;
  uint64_t handle = 0;  // 0 once donated: then there is nothing to release
  DType dtype = DType::kVoid;
  std::vector<int64_t> dims;

  std::shared_ptr<PendingValue> fetched;  // once it was asked for
  std::shared_ptr<DeferredUpload>
      deferred;  // its bytes, until something needs them; then handle is 0

  std::weak_ptr<LazyGraph> recording;  // where it was last used
  int64_t place = -1;                  // there

  TensorState* first = nullptr;  // the Values that have it, in the order in which they got it
  TensorState* last = nullptr;

  ~CloudBuffer();
};

// What the copies of a Tensor share.
struct TensorState : std::enable_shared_from_this<TensorState> {
  std::shared_ptr<LazyGraph> recording;
  const UOp* node = nullptr;
  std::shared_ptr<CloudBuffer> storage;
  std::shared_ptr<CloudBuffer> replaced;  // by assign, until the new value is realised
  std::vector<BoundVariable> bound;       // what a lazy value's VARs stand for
  std::shared_ptr<TensorState> grad;
  bool grad_used_up =
      false;  // by an optimiser, and not cleared since; grad is null then (backward.h)
  bool requires_grad = false;
  bool is_param = true;          // of a module: an optimiser takes it. For Python
  bool is_state = false;         // realised before its first use: parameters, running means ...
  std::shared_ptr<PartOf> part;  // of another tensor, which an assign to this one writes

  // Of the step that makes it, if one is recorded.
  const std::shared_ptr<MadeValues> made_in;

  // The list of `recording` or of `storage`.
  TensorState* previous = nullptr;
  TensorState* next = nullptr;

  TensorState();
  TensorState(const TensorState&) = delete;
  TensorState& operator=(const TensorState&) = delete;
  ~TensorState();

  bool lazy() const { return node != nullptr; }
  DType dtype() const;
  std::vector<int64_t> dims() const;  // requires numbers
  void SetLazy(std::shared_ptr<LazyGraph> where, const UOp* what);
  void SetStorage(std::shared_ptr<CloudBuffer> what);
  std::shared_ptr<CloudBuffer> TakeStorage();  // leaves it empty

 private:
  void Unlink();
};

// `value` stands for the node of `other`, which is lazy, and for no storage. No assign: nothing
// waits for it.
void BecomeLazy(TensorState& value, const TensorState& other);

// The encoding of one root, kept for the next time.
struct EncodedRun {
  std::shared_ptr<const std::string> bytes;
  transport::GraphHash id{};
  std::vector<int64_t> places;      // behind each PARAM slot
  std::vector<Variable> variables;  // behind each VAR slot
  std::shared_ptr<const Lines> lines;
  uint64_t line_changes = 0;  // as of `lines`
};

class LazyGraph : public std::enable_shared_from_this<LazyGraph> {
 public:
  // The one that this thread records into.
  static const std::shared_ptr<LazyGraph>& Current();
  // What this thread records into from now on; returns what it was. nullptr: an empty one at the
  // next use.
  static std::shared_ptr<LazyGraph> Exchange(std::shared_ptr<LazyGraph> next);
  // Starts another if this thread's has more nodes than `nodes_max`, those imported from older ones
  // not counted.
  static void Renew(int64_t nodes_max);

  // Whether both were begun in scopes of one session (session_scope.h), or outside of any.
  bool SharesScope(const LazyGraph& other) const {
    return !scope_.owner_before(other.scope_) && !other.scope_.owner_before(scope_);
  }
  // That session; nullptr for the process's. Throws Error with FAILED_PRECONDITION where it is
  // gone.
  std::shared_ptr<Session> ScopeSession(const At& at) const;

  Graph& graph() { return graph_; }

  // `at` writes `node`. Of several lines that write one node, the first since the last Encode is
  // kept: the same one in every step of a training, and none of an earlier tensor that had this
  // one's place. Nodes that were made since the last new one count as written here too.
  void Note(const UOp* node, const At& at) {
    if (node->index >= lines_.size()) lines_.resize(node->index + 1, {at, encodes_});
    Line& line = lines_[node->index];
    if (line.encodes == encodes_) return;
    line.encodes = encodes_;
    if (line.at.line() == at.line() && line.at.file_name() == at.file_name()) return;
    line.at = at;
    ++line_changes_;
  }
  At LineOf(const UOp* node) const;

  // The BUFFER node of `storage`, pinned. Throws Error with RESOURCE_EXHAUSTED where the graph is
  // full.
  const UOp* NodeOf(const std::shared_ptr<CloudBuffer>& storage, const At& at);
  // The storage behind a BUFFER node of this recording.
  std::shared_ptr<CloudBuffer> StorageAt(int64_t place) const { return places_[place].pin; }
  // The VAR of `variable`. Throws Error with INVALID_ARGUMENT where another of that name has
  // another range, with RESOURCE_EXHAUSTED where there are limits::kVarSlotMax others.
  const UOp* VarOf(const Variable& variable, const At& at);
  const Variable& VariableOf(const UOp* var) const {
    return variables_[outboard::VarOf(var).slot()];
  }
  // `bound` by the slots of this recording, of variables that it knows.
  std::vector<Binding> BindingsOf(const std::vector<BoundVariable>& bound) const;
  // `node` of `other`, made again here. Throws Error.
  const UOp* Import(LazyGraph& other, const UOp* node, const At& at);

  // Drops the pins that no live lazy value can reach.
  void Unpin();
  // Gives the place of `from`, which is about to die, to `to`.
  void MovePlace(CloudBuffer& from, const std::shared_ptr<CloudBuffer>& to);

  // Of the lazy values, in the order of their making.
  TensorState* first() const { return first_; }

  // The encoding of the graph under `sink`. Throws Error with RESOURCE_EXHAUSTED.
  const EncodedRun& Encode(const UOp* sink, const At& at);

  // The BUFFERs that `node` reads, sorted by address (for searching only). Cached.
  const std::vector<const UOp*>& InputsOf(const UOp* node);

  // By UOp::index, whether `node` is made from it or is it. Cached.
  const std::vector<bool>& Under(const UOp* node);

  // Gradients of a node that were built before; nullptr where not. `key` is y, the gradient
  // that comes to it, then the nodes it is taken for.
  const std::vector<const UOp*>* FindGradient(const std::vector<const UOp*>& key) const;
  void KeepGradient(std::vector<const UOp*> key, std::vector<const UOp*> gradients);

 private:
  friend struct TensorState;

  struct Place {
    std::shared_ptr<CloudBuffer> pin;
    std::weak_ptr<CloudBuffer> owner;  // free once it is gone or has moved away
    bool free = false;
  };

  int64_t TakePlace();
  // VAR slots in the order of first use, so that equal programs have equal ids.
  const UOp* WithVarsNumbered(const UOp* sink, std::vector<Variable>& variables);
  std::shared_ptr<const Lines> LinesUnder(const UOp* sink) const;

  const std::weak_ptr<Session> scope_ = ScopedSession();
  Graph graph_;
  struct Line {
    At at;
    uint64_t encodes;  // when it was noted
  };
  std::vector<Line> lines_;  // by UOp::index
  uint64_t encodes_ = 0, line_changes_ = 0;
  int64_t imported_ = 0;
  std::vector<Place> places_;
  std::vector<Variable> variables_;  // by slot of their VARs, which Encode numbers by first use
  std::priority_queue<int64_t, std::vector<int64_t>, std::greater<>> free_;  // the lowest first
  TensorState* first_ = nullptr;
  TensorState* last_ = nullptr;
  absl::flat_hash_map<const UOp*, EncodedRun> encoded_;
  absl::flat_hash_map<const UOp*, std::vector<const UOp*>> inputs_;
  absl::flat_hash_map<const UOp*, std::vector<bool>> under_;
  absl::flat_hash_map<std::vector<const UOp*>, std::vector<const UOp*>> gradients_;
};

}  // namespace outboard::internal
