// The session that this thread's tensors are computed in: that of its innermost SessionScope
// (client/tensor/session_scope.h), else the process's.
//
// Threads: every function may be called from any thread.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "client/session/session.h"
#include "client/session/stats.h"

namespace outboard {

// This thread's session. The first call connects the process's as the environment says
// (SessionOptions::FromEnvironment), which may block; after that the same session is returned until
// it is closed or replaced. Errors: those of Session::Connect. A failure is not remembered: the
// next call tries again.
absl::StatusOr<std::shared_ptr<Session>> CurrentSession();

// This thread's session if there is one; never connects.
std::shared_ptr<Session> SessionIfConnected();

// Replaces the process's session; nullptr for "connect at the next use". Tensors realised in
// another one keep it alive and can be read, but cannot be mixed with those of the new one
// (FAILED_PRECONDITION).
void SetSession(std::shared_ptr<Session> session);

// Forgets the process's session if it is this one: the next use connects anew.
void ReleaseProcessSession(const Session& session);

// Ends the process's session, if there is one, and returns its final numbers: when it returns the
// device is free and the bill is final.
absl::StatusOr<transport::Stats> CloseSession();

namespace internal {

// The session of this thread's innermost scope; nullptr outside of any.
const std::shared_ptr<Session>& ScopedSession();
// Replaces it; returns the one before.
std::shared_ptr<Session> ExchangeScopedSession(std::shared_ptr<Session> session);

}  // namespace internal
}  // namespace outboard
