// What a thread remembers between operations, besides its LazyGraph.
// Errors are thrown as error.h says. Threads: each has its own; nothing here is locked.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "client/lazy/lazy_graph.h"

namespace outboard::internal {

class NodeBuilder;

struct ThreadState {
  bool training = false;

  // Assigned and not realised yet, in the order of the assigns. The next realize takes them along,
  // or a running mean would grow into a chain as long as the training.
  std::vector<std::weak_ptr<TensorState>> pending;

  // Values with is_state, in the order in which they became it; also some that are gone.
  std::vector<std::weak_ptr<TensorState>> state;
  size_t live_state_count = 0;  // when last counted

  // What backward() has given a gradient to, apart from requires_grad; also some that are gone.
  std::vector<std::weak_ptr<TensorState>> graded;
  // What backward() began at since the last step of an optimiser, losses: a step computes them
  // along, since afterwards they would have to be computed anew from old parameters.
  std::vector<std::weak_ptr<TensorState>> differentiated;

  // The random numbers' key and the counter of the next one, u64[1] in the cloud: state like any
  // other, so that a step with dropout is the same graph every time. Of one session; made at the
  // first use and after manual_seed.
  std::optional<uint64_t> seed;
  std::shared_ptr<Session> random_session;
  std::shared_ptr<TensorState> random_key, random_counter;

  static ThreadState& Get();

  // Every state value that is alive, forgetting the others.
  std::vector<std::shared_ptr<TensorState>> LiveState();
  void AddState(const std::shared_ptr<TensorState>& value);
  void AddPending(const std::shared_ptr<TensorState>& value);
  void AddGraded(const std::shared_ptr<TensorState>& value);
  void AddDifferentiated(const std::shared_ptr<TensorState>& value);
};

// The state of the random numbers, made where it is not there yet. Throws Error.
ThreadState& RandomState(const At& at);

// A buffer of the current session with these bytes. Throws Error.
std::shared_ptr<CloudBuffer> Upload(DType dtype, const std::vector<int64_t>& dims,
                                    std::string_view bytes, const At& at);

// `node` becomes the value's with the next realize; what its variables are bound to goes with it.
void AssignNode(const std::shared_ptr<TensorState>& value, const NodeBuilder& rec, const UOp* node);

// The lazy ones of `values`, `fetch`, the pending assigns and new state, each once, in this order.
std::vector<std::shared_ptr<TensorState>> LazyValues(
    std::vector<std::shared_ptr<TensorState>> values,
    const std::vector<std::shared_ptr<TensorState>>& fetch);

// See realize() in tensor.h. Values that are realised already are only fetched. With `keep_pins` no
// buffer is given up, so that nodes which no TensorState holds stay good: for a realize in the
// middle of an operation.
void RealizeValues(std::vector<std::shared_ptr<TensorState>> values,
                   const std::vector<std::shared_ptr<TensorState>>& fetch, const At& at,
                   bool keep_pins = false);

// The node of `value` in `recording`, which need not be the current one any more. Realises state
// before its first use.
const UOp* NodeOfValue(const std::shared_ptr<TensorState>& value,
                       const std::shared_ptr<LazyGraph>& recording, const At& at);

}  // namespace outboard::internal
