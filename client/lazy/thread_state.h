// Per-thread state that lasts between operations, besides the LazyGraph, and what an assign does
// with it (assign.cc). What a realize does is in realize.h.
// Errors are thrown as outboard::Error (client/tensor/error.h). Threads: each has its own; nothing
// here is locked.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "client/lazy/lazy_graph.h"

namespace outboard {
class Tensor;
}

namespace outboard::internal {

class NodeBuilder;

struct ThreadState {
  bool training = false;
  bool allow_tf32 = false;  // begins with ALLOW_TF32 of the environment

  // Assigned and not realised yet, in the order of the assigns. The next realize includes them;
  // otherwise a running mean would grow into a chain as long as the training.
  std::vector<std::weak_ptr<TensorState>> pending;

  // Values with is_state, in the order in which they were marked; may contain expired ones.
  std::vector<std::weak_ptr<TensorState>> states;
  size_t live_state_count = 0;  // when last counted

  // Values to which backward() gave a gradient although they have no requires_grad; may contain
  // expired ones.
  std::vector<std::weak_ptr<TensorState>> graded;
  // Values on which backward() was called since the last optimiser step, that is, losses: a step
  // computes them too, because afterwards they could only be recomputed from old parameters.
  std::vector<std::weak_ptr<TensorState>> differentiated;

  // The random key and the counter of the next number, u64[1] in the cloud: state like any other,
  // so that a step with dropout is the same graph every time. Belongs to one session; made at the
  // first use and after manual_seed.
  std::optional<uint64_t> seed;
  std::shared_ptr<Session> random_session;
  std::shared_ptr<TensorState> random_key, random_counter;

  static ThreadState& Get();

  // Returns all live state values and drops the expired ones.
  std::vector<std::shared_ptr<TensorState>> LiveState();
  void AddState(const std::shared_ptr<TensorState>& state);
  void AddPending(const std::shared_ptr<TensorState>& state);
  void AddGraded(const std::shared_ptr<TensorState>& state);
  void AddDifferentiated(const std::shared_ptr<TensorState>& state);
};

// Returns the state of a tensor. Throws Error with FAILED_PRECONDITION if the tensor is empty.
std::shared_ptr<TensorState> StateOf(const Tensor& tensor, const At& at);

// Returns the thread's state with its random generator, which is made if necessary: that sends two
// Puts, and opens the session if there is none (CurrentSession), which may block. Defined in
// client/ops/random/random.cc. Throws Error.
ThreadState& RandomState(const At& at);

// Assigns `node` to the tensor at the next realize, together with the bindings of its variables.
void AssignNode(const std::shared_ptr<TensorState>& state, const NodeBuilder& build,
                const UOp* node);

}  // namespace outboard::internal
