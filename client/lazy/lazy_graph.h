// The state of Tensors: nodes that are still to be computed, and buffers in the cloud.
//
// Invariants
//   1. A TensorState is empty, lazy (graph and node) or realised (storage). assign makes it
//      lazy again and remembers the storage that it replaces.
//   2. A BUFFER node names an index (place) of its LazyGraph, not a handle. While a live lazy
//      TensorState can reach the node, the place pins its storage, so a buffer is not released
//      before the last TensorState that can still read it.
//   3. A storage that replaces one that has no other owner left takes over its place. So the graph
//      of a training step consists of the same nodes every time: building it again is look-ups,
//      and its encoding is cached by its root.
//   4. Pins are dropped and places become free only in Unpin, which realize calls.
//   5. A lazy TensorState is in the list of its LazyGraph, a realised one in that of its
//      CloudBuffer: so the TensorStates that a graph reads can be found from its nodes.
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
#include "client/session/request.h"
#include "client/tensor/at.h"
#include "client/tensor/error.h"
#include "client/tensor/session_scope.h"
#include "client/tensor/variable.h"
#include "compiler/ir/accessors.h"
#include "compiler/ir/host_tensor.h"
#include "compiler/ir/uop.h"

namespace outboard::internal {

// The line that first wrote each node of a graph, in the canonical order.
using Lines = std::vector<At>;

// Returns the origin of a Run that is sent at line `at`: the lines of the program that its nodes
// came from, for error messages of the session that runs it (client/session/core/failure.h).
std::shared_ptr<const session::RunOrigin> OriginOf(const At& at,
                                                   std::shared_ptr<const Lines> lines);

// A thread starts a new LazyGraph if a realize leaves more nodes than this in the old one.
inline constexpr int64_t kLazyGraphNodesMax = 1 << 17;
// Or if it has more VARs than this: of variables, and of ranges to which they were narrowed; below
// limits::kVarSlotMax by more than one operation makes.
inline constexpr int kVarsKeptMax = 48;
// The same between two realizes, after recording this many nodes; below limits::kGraphNodesMax.
inline constexpr int64_t kUnrealisedNodesMax = 1 << 19;

class MadeValues;  // client/capture/step_observer.h
class LazyGraph;
struct PartOf;  // client/ops/index/part_of.h
struct TensorState;

// A buffer in the cloud and, once requested, its content. Released with its last owner.
struct CloudBuffer {
  std::shared_ptr<Session> session;
  uint64_t handle = 0;  // 0 once donated: nothing is left to release
  DType dtype = DType::kVoid;
  std::vector<int64_t> dims;

  std::shared_ptr<PendingValue> fetched;  // asked for; it may be on its way
  std::shared_ptr<DeferredUpload>
      deferred;  // its bytes, until something needs them; then handle is 0

  // With the variables that they are made of, as they were bound; empty if there are none.
  std::vector<SymInt> sizes;
  // An argument of a step that is being recorded: tensors and graphs show `sizes`, not `dims`.
  bool is_symbolic = false;

  std::weak_ptr<LazyGraph> lazy_graph;  // that used it last
  int64_t place = -1;                   // in that graph

  TensorState* first = nullptr;  // the TensorStates that have it, oldest first
  TensorState* last = nullptr;

  ~CloudBuffer();
};

// The state that the copies of a Tensor share.
struct TensorState : std::enable_shared_from_this<TensorState> {
  std::shared_ptr<LazyGraph> lazy_graph;
  const UOp* node = nullptr;
  std::shared_ptr<CloudBuffer> storage;
  std::shared_ptr<CloudBuffer> replaced;  // by assign, until the new value is realised
  std::vector<BoundVariable> bound;       // values of the VARs of a lazy node
  std::shared_ptr<TensorState> grad;
  // By an optimiser, and not cleared since; grad is null then (backward.h).
  bool grad_used_up = false;
  bool requires_grad = false;
  // Python's `is_param`, of which its `requires_grad` is an older name: whether optimisers may
  // change it. True until a program clears it. Not the member above, which is C++'s.
  bool is_param = true;
  bool is_state = false;  // realised before its first use: parameters, running means ...
  // Made in a captured step and not realised there, and the step was sent again: the value would be
  // that of the recording. Using it is an error.
  bool is_stale = false;
  std::optional<std::pair<int64_t, int64_t>> layout;  // the last hint: mesh axis, dimension
  std::shared_ptr<PartOf> part;  // set if this is a view of another tensor: an assign writes to it
  uint64_t writes = 0;           // assigns, for the views of this
  std::vector<uint64_t> kept_ids;  // of its names (client/nn/kept.h): a new value takes them over

  // Of the step that makes it, if one is being recorded.
  const std::shared_ptr<MadeValues> made_in;

  // The list of `lazy_graph` or of `storage`.
  TensorState* previous = nullptr;
  TensorState* next = nullptr;

  TensorState();
  TensorState(const TensorState&) = delete;
  TensorState& operator=(const TensorState&) = delete;
  ~TensorState();

  bool lazy() const { return node != nullptr; }
  DType dtype() const;
  std::vector<int64_t> dims() const;  // requires that none is symbolic
  void SetLazy(std::shared_ptr<LazyGraph> where, const UOp* what);
  void SetStorage(std::shared_ptr<CloudBuffer> what);
  std::shared_ptr<CloudBuffer> TakeStorage();  // leaves it empty

 private:
  void Unlink();
};

// Makes `state` lazy with the node of `other`, which is lazy, and without storage. This is not an
// assign: it is not pending for the next realize.
void BecomeLazy(TensorState& state, const TensorState& other);

// A variable, and the values of it that one graph is valid for: all, unless a part of a tensor fits
// for some of them only (client/lazy/narrow.h).
struct RangedVariable {
  Variable variable;
  int64_t least, most;
  bool Holds(int64_t value) const { return least <= value && value <= most; }
  friend bool operator==(const RangedVariable&, const RangedVariable&) = default;
};

// The cached encoding of one root.
struct EncodedRun {
  std::shared_ptr<const std::string> bytes;
  session::GraphId id{};
  std::vector<int64_t> places;            // of each PARAM slot
  std::vector<RangedVariable> variables;  // of each VAR slot
  std::shared_ptr<const Lines> lines;
  uint64_t line_changes = 0;  // as of `lines`
};

class LazyGraph : public std::enable_shared_from_this<LazyGraph> {
 public:
  // The LazyGraph that this thread records into.
  static const std::shared_ptr<LazyGraph>& Current();
  // Sets the LazyGraph that this thread records into; returns the previous one. nullptr: a new one
  // at the next use.
  static std::shared_ptr<LazyGraph> Exchange(std::shared_ptr<LazyGraph> next);
  // Starts a new one if this thread's has more than `nodes_max` nodes, not counting those imported
  // from older ones.
  static void Renew(int64_t nodes_max);

  // True if both were started in scopes of one session (client/tensor/session_scope.h), or outside
  // of any.
  bool SharesScope(const LazyGraph& other) const {
    return !scope_.owner_before(other.scope_) && !other.scope_.owner_before(scope_);
  }
  // Returns that session; nullptr for the process's. Throws Error with FAILED_PRECONDITION if it no
  // longer exists.
  std::shared_ptr<Session> ScopeSession(const At& at) const;

  Graph& graph() { return graph_; }

  // Records that line `at` wrote `node`. If several lines write one node, the first since the last
  // Encode counts: the same one in every training step, and not that of an earlier tensor at the
  // same place. Nodes made since the last call count as written here too.
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

  // Returns the BUFFER node of `buffer` and pins the buffer. Throws Error with RESOURCE_EXHAUSTED
  // if the graph is full.
  const UOp* NodeOf(const std::shared_ptr<CloudBuffer>& buffer, const At& at);
  // Returns the buffer of a BUFFER node of this graph.
  std::shared_ptr<CloudBuffer> StorageAt(int64_t place) const { return places_[place].pin; }
  // Returns the VAR of a variable: for all of its values, or for those to which it was narrowed, if
  // it has one of these. Throws Error with RESOURCE_EXHAUSTED if there are limits::kVarSlotMax
  // others.
  const UOp* VarOf(const BoundVariable& bound, const At& at) { return VarIn(RangeOf(bound), at); }
  const Variable& VariableOf(const UOp* var) const {
    return variables_[outboard::VarOf(var).slot()].variable;
  }
  RangedVariable RangeOf(const BoundVariable& bound) const;
  // A variable that has one of these values has no other from now on, in the lazy TensorStates that
  // depend on it too, until a realize leaves none of these.
  void Narrow(const RangedVariable& range, const At& at);
  bool is_narrowed() const { return !narrowings_.empty(); }
  int64_t narrowing_count() const { return narrowing_count_; }  // in its lifetime
  // Returns `bound` by the slots of this graph, for the variables that it knows.
  std::vector<Binding> BindingsOf(const std::vector<BoundVariable>& bound) const;
  // Copies `node` of `other` into this graph. Throws Error as BUFFER and VAR nodes do.
  const UOp* Import(LazyGraph& other, const UOp* node, const std::vector<BoundVariable>& bound,
                    const At& at);

  // Drops the pins that no live lazy value can reach.
  void Unpin();
  // Moves the place of `from`, which is about to be destroyed, to `to`.
  void MovePlace(CloudBuffer& from, const std::shared_ptr<CloudBuffer>& to);

  // Returns the lazy TensorStates, oldest first.
  TensorState* first() const { return first_; }

  // Returns the encoding of the graph under `sink`. Throws Error with RESOURCE_EXHAUSTED.
  const EncodedRun& Encode(const UOp* sink, const At& at);

  // Returns the BUFFERs that `node` reads, sorted by address (for searching only). Cached.
  const std::vector<const UOp*>& InputsOf(const UOp* node);

  // Returns, by UOp::index, whether `node` depends on it or is it. Cached.
  const std::vector<bool>& Under(const UOp* node);

  // Returns gradients of a node that were built before; nullptr if there are none. `key` is y, the
  // incoming gradient of y, then the nodes to differentiate by.
  const std::vector<const UOp*>* FindGradient(const std::vector<const UOp*>& key) const;
  void KeepGradient(std::vector<const UOp*> key, std::vector<const UOp*> gradients);

 private:
  friend struct TensorState;

  struct Place {
    std::shared_ptr<CloudBuffer> pin;
    std::weak_ptr<CloudBuffer> owner;  // free once it is gone or has another place
    bool free = false;
  };

  int64_t TakePlace();
  int64_t PlaceOf(const std::shared_ptr<CloudBuffer>& buffer);
  const UOp* VarIn(const RangedVariable& range, const At& at);
  void ForgetNarrowings();
  // `node` with the variables narrowed as they are now.
  const UOp* Narrowed(const UOp* node, const std::vector<BoundVariable>& bound, const At& at);
  // VAR slots in the order of first use, so that equal programs have equal ids.
  const UOp* WithVarsNumbered(const UOp* sink, std::vector<RangedVariable>& variables);
  std::shared_ptr<const Lines> LinesUnder(const UOp* sink) const;

  const std::weak_ptr<Session> scope_ = ScopedSession();
  Graph graph_;
  struct Line {
    At at;
    uint64_t encodes;  // when the line was recorded
  };
  std::vector<Line> lines_;  // by UOp::index
  uint64_t encodes_ = 0, line_changes_ = 0;
  int64_t imported_ = 0;
  std::vector<Place> places_;
  std::vector<RangedVariable> variables_;  // by slot of their VARs; Encode numbers by first use
  std::vector<RangedVariable> narrowings_;
  int64_t narrowing_count_ = 0;
  std::priority_queue<int64_t, std::vector<int64_t>, std::greater<>> free_;  // the lowest first
  TensorState* first_ = nullptr;
  TensorState* last_ = nullptr;
  absl::flat_hash_map<const UOp*, EncodedRun> encoded_;
  absl::flat_hash_map<const UOp*, std::vector<const UOp*>> inputs_;
  absl::flat_hash_map<const UOp*, std::vector<bool>> under_;
  absl::flat_hash_map<std::vector<const UOp*>, std::vector<const UOp*>> gradients_;
};

}  // namespace outboard::internal
