// Several sessions in one program: what a thread does while a SessionScope lives happens in that
// scope's session.
//
//   SessionScope scope(session);
//   Tensor y = model(x);            // recorded for `session`, whoever reads it later
//
// Parameters, running means and random numbers that a thread makes in one session are apart from
// those of another: a realize takes along only those of its own. Random numbers begin from the
// thread's seed in each session, and go on where they were when a thread comes back to one. A
// tensor is computed where it was made, also when it is read elsewhere; what is made of tensors of
// several scopes is the present scope's.
// Errors (thrown where values are asked for): FAILED_PRECONDITION for tensors of two sessions in
// one computation, and for one whose session is gone.
// Threads: a scope is of the thread that made it. Scopes of one thread end in the reverse order of
// their making.
#pragma once

#include <memory>

#include "client/session/current_session.h"

namespace outboard {

namespace internal {
struct ThreadContext;
}

class SessionScope {
 public:
  // nullptr: the process's session.
  explicit SessionScope(std::shared_ptr<Session> session);
  ~SessionScope();
  SessionScope(const SessionScope&) = delete;
  SessionScope& operator=(const SessionScope&) = delete;

 private:
  std::shared_ptr<Session> outer_session_;
  // nullptr: the session was this thread's already.
  std::unique_ptr<internal::ThreadContext> outer_;
};

// Drops what this thread keeps of a session that it does not come back to.
void ForgetSession(const Session& session);

}  // namespace outboard
