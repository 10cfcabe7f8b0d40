#include "client/lazy/thread_state.h"

#include <cstdlib>
#include <utility>

#include "client/tensor/tensor.h"

namespace outboard::internal {
namespace {

bool Tf32OfEnvironment() {
  const char* const text = std::getenv("ALLOW_TF32");
  return text != nullptr && std::atoi(text) != 0;
}

}  // namespace

ThreadState& ThreadState::Get() {
  thread_local ThreadState mine{.allow_tf32 = Tf32OfEnvironment()};
  return mine;
}

std::vector<std::shared_ptr<TensorState>> ThreadState::LiveState() {
  std::vector<std::shared_ptr<TensorState>> live;
  for (const std::weak_ptr<TensorState>& known : states)
    if (std::shared_ptr<TensorState> state = known.lock(); state != nullptr)
      live.push_back(std::move(state));
  states.assign(live.begin(), live.end());
  return live;
}

void ThreadState::AddState(const std::shared_ptr<TensorState>& state) {
  if (state->is_state) return;
  state->is_state = true;
  // Forgetting the dead now and then keeps the list in proportion to the living.
  if (states.size() >= 2 * live_state_count + 64) live_state_count = LiveState().size();
  states.push_back(state);
}

void ThreadState::AddPending(const std::shared_ptr<TensorState>& state) {
  for (const std::weak_ptr<TensorState>& known : pending)
    if (known.lock() == state) return;
  pending.push_back(state);
}

namespace {
void Append(std::vector<std::weak_ptr<TensorState>>& list,
            const std::shared_ptr<TensorState>& state) {
  if (list.size() == list.capacity())
    std::erase_if(list, [](const std::weak_ptr<TensorState>& known) { return known.expired(); });
  list.push_back(state);
}
}  // namespace

void ThreadState::AddGraded(const std::shared_ptr<TensorState>& state) { Append(graded, state); }
void ThreadState::AddDifferentiated(const std::shared_ptr<TensorState>& state) {
  Append(differentiated, state);
}

std::shared_ptr<TensorState> StateOf(const Tensor& tensor, const At& at) {
  if (tensor.empty()) throw Error(absl::FailedPreconditionError("the tensor is empty"), at);
  return tensor.value();
}

}  // namespace outboard::internal
