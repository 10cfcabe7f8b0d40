// Which failures a client may hope to get past by asking again: Failed.retryable. One rule for each
// kind of thing that fails, since a code means something else for each.
#pragma once

#include <cstdint>

#include "absl/status/status.h"

namespace outboard::wire {

enum class FailureOf : uint8_t {
  kItem,        // of a session: Put, Run, Fetch; only a full device may have room later
  kCheckpoint,  // Save: its blobs are stored beside the session, by a gateway that may be busy
  kSession,     // the whole session, or the stream of its client: a worker or gateway went away
};

// True if the same request may succeed later.
constexpr bool IsRetryable(FailureOf what, absl::StatusCode code) {
  switch (what) {
    case FailureOf::kItem: return code == absl::StatusCode::kResourceExhausted;
    case FailureOf::kCheckpoint:
      return code == absl::StatusCode::kResourceExhausted ||
             code == absl::StatusCode::kUnavailable || code == absl::StatusCode::kAborted;
    case FailureOf::kSession: return code == absl::StatusCode::kUnavailable;
  }
  return false;
}

}  // namespace outboard::wire
