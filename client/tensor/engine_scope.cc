#include "client/tensor/engine_scope.h"

#include <utility>

#include "absl/container/flat_hash_map.h"
#include "client/lazy/thread_state.h"

namespace outboard {
namespace internal {

// All that a thread keeps between operations for one engine.
struct ThreadContext {
  ThreadState state;
  std::shared_ptr<LazyGraph> recording;
  std::weak_ptr<Engine> engine;  // an address alone may be another engine's by now
};

namespace {

std::shared_ptr<Engine>& ScopedEngineSlot() {
  thread_local std::shared_ptr<Engine> engine;
  return engine;
}

// Of engines that this thread was in and may come back to; nullptr is the process's.
absl::flat_hash_map<const Engine*, std::unique_ptr<ThreadContext>>& Parked() {
  thread_local absl::flat_hash_map<const Engine*, std::unique_ptr<ThreadContext>> parked;
  return parked;
}

// Makes `next` this thread's context; `next` holds the old one after it. Whether a model trains is
// the thread's matter.
void Swap(ThreadContext& next) {
  ThreadState& now = ThreadState::Get();
  next.state.training = now.training;
  std::swap(now, next.state);
  next.recording = LazyGraph::Exchange(std::move(next.recording));
}

}  // namespace

const std::shared_ptr<Engine>& ScopedEngine() { return ScopedEngineSlot(); }

}  // namespace internal

EngineScope::EngineScope(std::shared_ptr<Engine> engine) {
  using internal::ThreadContext;
  if (internal::ScopedEngine() == engine) return;
  outer_ = std::move(internal::Parked()[engine.get()]);
  if (outer_ == nullptr || outer_->engine.lock() != engine) {
    outer_ = std::make_unique<ThreadContext>();
    outer_->engine = engine;
    outer_->state.seed = internal::ThreadState::Get().seed;
  }
  outer_engine_ = std::exchange(internal::ScopedEngineSlot(), std::move(engine));
  internal::Swap(*outer_);
}

EngineScope::~EngineScope() {
  if (outer_ == nullptr) return;
  const std::shared_ptr<Engine> engine =
      std::exchange(internal::ScopedEngineSlot(), std::move(outer_engine_));
  internal::Swap(*outer_);
  internal::Parked()[engine.get()] = std::move(outer_);
}

void ForgetEngine(const Engine& engine) { internal::Parked().erase(&engine); }

}  // namespace outboard
