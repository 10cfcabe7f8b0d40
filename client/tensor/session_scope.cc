#include "client/tensor/session_scope.h"

#include <utility>

#include "absl/container/flat_hash_map.h"
#include "client/lazy/thread_state.h"

namespace outboard {
namespace internal {

// All that a thread keeps between operations for one session.
struct ThreadContext {
  ThreadState state;
  std::shared_ptr<LazyGraph> lazy_graph;
  std::weak_ptr<Session> session;  // an address alone may be another session's by now
};

namespace {

// Of sessions that this thread was in and may come back to; nullptr is the process's.
absl::flat_hash_map<const Session*, std::unique_ptr<ThreadContext>>& Parked() {
  thread_local absl::flat_hash_map<const Session*, std::unique_ptr<ThreadContext>> parked;
  return parked;
}

// Makes `next` this thread's context; `next` holds the old one after it. Whether a model trains,
// and with what digits, is the thread's matter.
void Swap(ThreadContext& next) {
  ThreadState& now = ThreadState::Get();
  next.state.training = now.training;
  next.state.allow_tf32 = now.allow_tf32;
  std::swap(now, next.state);
  next.lazy_graph = LazyGraph::Exchange(std::move(next.lazy_graph));
}

}  // namespace

}  // namespace internal

SessionScope::SessionScope(std::shared_ptr<Session> session) {
  using internal::ThreadContext;
  if (internal::ScopedSession() == session) return;
  outer_ = std::move(internal::Parked()[session.get()]);
  if (outer_ == nullptr || outer_->session.lock() != session) {
    outer_ = std::make_unique<ThreadContext>();
    outer_->session = session;
    outer_->state.seed = internal::ThreadState::Get().seed;
  }
  outer_session_ = internal::ExchangeScopedSession(std::move(session));
  internal::Swap(*outer_);
}

SessionScope::~SessionScope() {
  if (outer_ == nullptr) return;
  const std::shared_ptr<Session> session =
      internal::ExchangeScopedSession(std::move(outer_session_));
  internal::Swap(*outer_);
  internal::Parked()[session.get()] = std::move(outer_);
}

void ForgetSession(const Session& session) { internal::Parked().erase(&session); }

}  // namespace outboard
