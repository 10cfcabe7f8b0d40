// Detects whether an object was made in this process or before a fork. A forked child has its
// parent's memory but none of its threads: sessions and gRPC objects are unusable in it, and
// waiting for them would hang.
//
// Threads: any. Costs one load. Errors: operations on objects made before the fork return
// ForkedError, a FAILED_PRECONDITION.
#pragma once

#include <cstdint>

#include "absl/status/status.h"

namespace outboard::session {

// Returns the number of forks between the first process and this one.
uint64_t ForksSoFar();

// Remembers the process that it was constructed in.
class Birthplace {
 public:
  bool here() const { return forks_ == ForksSoFar(); }

 private:
  uint64_t forks_ = ForksSoFar();
};

absl::Status ForkedError();

}  // namespace outboard::session
