// Whether this process is still the one in which something was made. A fork's child has the memory
// of its parent but none of its threads: sessions and what belongs to gRPC are dead in it, and must
// not be waited for.
//
// Threads: any. Costs a load. Errors: what was made before the fork says FAILED_PRECONDITION with
// ForkedError.
#pragma once

#include <cstdint>

#include "absl/status/status.h"

namespace outboard::transport {

// How many forks lie between the first process and this one.
uint64_t ForksSoFar();

// Remembers the process that it was made in.
class Birthplace {
 public:
  bool here() const { return forks_ == ForksSoFar(); }

 private:
  uint64_t forks_ = ForksSoFar();
};

absl::Status ForkedError();

}  // namespace outboard::transport
