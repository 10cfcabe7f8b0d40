// The session in which this thread's tensors are computed: that of its innermost SessionScope
// (client/tensor/session_scope.h), else the process's.
//
// Threads: every function may be called from any thread.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "client/session/session.h"
#include "client/session/stats.h"

namespace outboard {

// Returns this thread's session. The first call connects the process's session from the environment
// (SessionOptions::FromEnvironment), which may block; later calls return the same session until it
// is closed or replaced. Errors: those of Session::Connect. A failure is not cached: the next call
// tries again.
absl::StatusOr<std::shared_ptr<Session>> CurrentSession();

// Returns this thread's session or nullptr; never connects.
std::shared_ptr<Session> SessionIfConnected();

// Replaces the process's session; nullptr means "connect at the next use". Tensors realised in
// another session keep that session alive and can be read, but cannot be combined with those of the
// new one (FAILED_PRECONDITION).
void SetSession(std::shared_ptr<Session> session);

// Drops the process's session if it is this one: the next use connects again.
void ReleaseProcessSession(const Session& session);

// Ends the process's session, if there is one, and returns its final statistics: when it returns,
// the device is free and the bill is final. One with a name is left instead (Session::Detach).
absl::StatusOr<session::Stats> CloseSession();

namespace internal {

// The session of this thread's innermost scope; nullptr outside of any.
const std::shared_ptr<Session>& ScopedSession();
// Replaces it; returns the previous one.
std::shared_ptr<Session> ExchangeScopedSession(std::shared_ptr<Session> session);

}  // namespace internal
}  // namespace outboard
