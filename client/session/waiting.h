// What else happens while a caller sleeps for the other side: an interpreter's lock is given up,
// and somebody may say that it has waited enough.
//
//   SetWaitHooks({.check = [] { return stop ? absl::CancelledError("stopped") : absl::OkStatus();
//   }});
//
// A wait that is cut short takes nothing: the session and its values are as before, and the same
// wait may be begun again. Hooks run with no lock of the library's held, so that they may take any
// of their own. A wait that need not sleep runs none of them.
// Errors: whatever `check` returns, CANCELLED by custom, is what the call that waits returns.
// Threads: hooks are called in the thread that waits. Set once, before the first wait.
#pragma once

#include <chrono>

#include "absl/status/status.h"

namespace outboard::transport {

struct WaitHooks {
  void* (*begin)() = nullptr;          // before the thread sleeps; the result is for `end`
  void (*end)(void* begun) = nullptr;  // it is awake
  absl::Status (*check)() = nullptr;   // every kWaitCheckEvery between them: may it sleep on?
};

void SetWaitHooks(const WaitHooks& hooks);

// An eye does not see that a key was answered later than this.
inline constexpr std::chrono::milliseconds kWaitCheckEvery{50};

// While it lives its thread sleeps, or may. They nest.
class Waiting {
 public:
  Waiting();
  ~Waiting();
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

  // Not OK: stop waiting, and return it.
  static absl::Status Check();

 private:
  void* begun_ = nullptr;
};

}  // namespace outboard::transport
