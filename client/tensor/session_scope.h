// Uses several sessions in one program: while a SessionScope lives, its thread records into that
// scope's session.
//
//   SessionScope scope(session);
//   Tensor y = model(x);            // recorded for `session`, whoever reads it later
//
// Each session of a thread has its own parameters, running means and random numbers: a realize
// includes only those of its own session. Random numbers start from the thread's seed in each
// session and continue where they stopped when the thread returns to one. A tensor is computed in
// the session it was made in, also if it is read in another scope; an operation on tensors of
// several scopes belongs to the current scope. Errors (thrown where a value is requested):
// FAILED_PRECONDITION for one computation with tensors of two sessions, and for a tensor whose
// session no longer exists. Threads: a scope belongs to the thread that made it. Scopes of one
// thread end in reverse order of construction.
#pragma once

#include <memory>

#include "client/session/current_session.h"

namespace outboard {

namespace internal {
struct ThreadContext;
}

class SessionScope {
 public:
  // nullptr selects the process's session.
  explicit SessionScope(std::shared_ptr<Session> session);
  ~SessionScope();
  SessionScope(const SessionScope&) = delete;
  SessionScope& operator=(const SessionScope&) = delete;

 private:
  std::shared_ptr<Session> outer_session_;
  // nullptr if the thread used this session already.
  std::unique_ptr<internal::ThreadContext> outer_;
};

// Drops the state that this thread holds for a session it will not use again.
void ForgetSession(const Session& session);

}  // namespace outboard
