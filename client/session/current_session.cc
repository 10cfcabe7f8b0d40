#include "client/session/current_session.h"

#include <mutex>
#include <utility>

#include "base/check.h"
#include "client/session/session_options.h"
#include "client/session/waiting.h"

namespace outboard {
namespace {

struct Slot {
  std::mutex connecting;  // held while a thread connects, which takes its time
  std::mutex mutex;       // held for moments
  std::shared_ptr<Session> session;
};

Slot& TheSlot() {
  static Slot slot;
  return slot;
}

std::shared_ptr<Session> SessionOfProcess() {
  Slot& slot = TheSlot();
  const std::lock_guard lock(slot.mutex);
  return slot.session;
}

std::shared_ptr<Session>& ScopedSlot() {
  thread_local std::shared_ptr<Session> session;
  return session;
}

}  // namespace

absl::StatusOr<std::shared_ptr<Session>> CurrentSession() {
  if (std::shared_ptr<Session> session = SessionIfConnected(); session != nullptr) return session;
  const session::Waiting waiting;  // also for another thread that connects
  const std::lock_guard connecting(TheSlot().connecting);
  if (std::shared_ptr<Session> session = SessionOfProcess(); session != nullptr) return session;
  OB_ASSIGN_OR_RETURN(const session::SessionOptions options,
                      session::SessionOptions::FromEnvironment());
  OB_ASSIGN_OR_RETURN(std::shared_ptr<Session> session, Session::Connect(options));
  SetSession(session);
  return session;
}

std::shared_ptr<Session> SessionIfConnected() {
  const std::shared_ptr<Session>& scoped = internal::ScopedSession();
  return scoped != nullptr ? scoped : SessionOfProcess();
}

void SetSession(std::shared_ptr<Session> session) {
  Slot& slot = TheSlot();
  const std::lock_guard lock(slot.mutex);
  std::swap(slot.session, session);  // the old one ends, which takes its time, without the lock
}

void ReleaseProcessSession(const Session& session) {
  if (SessionOfProcess().get() == &session) SetSession(nullptr);
}

absl::StatusOr<session::Stats> CloseSession() {
  const std::shared_ptr<Session> session = SessionOfProcess();
  if (session == nullptr) return session::Stats{};
  if (session->outlives_program())
    session->Detach().IgnoreError();  // what failed was the program's to ask for
  else
    OB_RETURN_IF_ERROR(session->Close());
  const session::Stats stats = session->stats();
  SetSession(nullptr);
  return stats;
}

namespace internal {

const std::shared_ptr<Session>& ScopedSession() { return ScopedSlot(); }

std::shared_ptr<Session> ExchangeScopedSession(std::shared_ptr<Session> session) {
  return std::exchange(ScopedSlot(), std::move(session));
}

}  // namespace internal
}  // namespace outboard
