// How fast executors of this worker exchange data, measured with the sockets that they use
// (runtime/collective/sockets.h), for the gateway's choice of how to divide a step.
#pragma once

#include "absl/status/statusor.h"
#include "runtime/collective/collective.h"

namespace outboard::worker {

struct LinkSpeed {
  double bytes_per_s = 0;  // that each of two ranks sends while it receives as much
  double message_s = 0;    // of a transfer without data worth mentioning
};

// Lets two ranks, threads of this process, exchange some megabytes: some ten milliseconds.
// Errors: UNAVAILABLE  no sockets or threads
absl::StatusOr<LinkSpeed> MeasureLink();

// Between this rank and the other of two, which calls it too: at most 11 MiB each way, and less
// over a slow link, so that it takes some tenths of a second. The larger time of both counts.
// Errors: those of `rank`.
absl::StatusOr<LinkSpeed> MeasureLinkOf(collective::Collective& rank);

}  // namespace outboard::worker
