// Hooks that run while a caller sleeps for the other side: to release an interpreter's lock, and to
// interrupt the wait.
//
//   SetWaitHooks({.check = [] { return stop ? absl::CancelledError("stopped") : absl::OkStatus();
//   }});
//
// An interrupted wait takes nothing: the session and its values are as before, and the same wait
// may be started again. Hooks run without any lock of the library's, so that they may take their
// own. A wait that need not sleep runs none of them.
// Errors: the waiting call returns the status of `check`, CANCELLED by convention.
// Threads: hooks are called in the thread that waits. Set once, before the first wait.
#pragma once

#include <chrono>

#include "absl/status/status.h"

namespace outboard::session {

struct WaitHooks {
  void* (*begin)() = nullptr;          // before the thread sleeps; the result is passed to `end`
  void (*end)(void* begun) = nullptr;  // the thread is awake
  absl::Status (*check)() = nullptr;   // every kWaitCheckEvery in between; OK: keep sleeping
};

void SetWaitHooks(const WaitHooks& hooks);

// Short enough that a person notices no delay after a key press.
inline constexpr std::chrono::milliseconds kWaitCheckEvery{50};

// Marks this thread as sleeping, or about to sleep, while it lives. May be nested.
class Waiting {
 public:
  Waiting();
  ~Waiting();
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

  // Returns the status of `check`; if it is not OK, stop waiting and return it.
  static absl::Status Check();

 private:
  void* begun_ = nullptr;
};

}  // namespace outboard::session
