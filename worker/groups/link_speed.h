// How fast executors of this worker exchange data, measured with the sockets that they use
// (runtime/collective/sockets.h), for the gateway's choice of how to divide a step.
#pragma once

#include "absl/status/statusor.h"

namespace outboard::worker {

struct LinkSpeed {
  double bytes_per_s = 0;  // that each of two ranks sends while it receives as much
  double message_s = 0;    // of a transfer without data worth mentioning
};

// Lets two ranks, threads of this process, exchange some megabytes: some ten milliseconds.
// Errors: UNAVAILABLE  no sockets or threads
absl::StatusOr<LinkSpeed> MeasureLink();

}  // namespace outboard::worker
