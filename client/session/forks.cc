#include "client/session/forks.h"

#include <pthread.h>

namespace outboard::session {

namespace {

// A child has one thread when it counts, so that a plain number is enough.
uint64_t forks = 0;
[[maybe_unused]] const int kCounted = pthread_atfork(nullptr, nullptr, [] { ++forks; });

}  // namespace

uint64_t ForksSoFar() { return forks; }

absl::Status ForkedError() {
  return absl::FailedPreconditionError(
      "this process was forked from one that had a session already, which does not survive a fork; "
      "start it anew "
      "instead (in Python: multiprocessing.get_context(\"spawn\")), or fork before the program "
      "connects");
}

}  // namespace outboard::session
