// Ranks in processes of their own, on one machine or several, over TCP by Gloo.
//
// Each block goes straight from the sender's memory to the receiver's: what is sent is (n - 1) / n
// of what is received, as in a ring, in one step instead of n - 1. Bytes move on a thread of Gloo's
// while the caller computes.
//
// Gloo has neither TLS nor keys: whoever reaches its ports can send. So it listens on one address
// alone, that of a network which only workers reach, at ports that the system chooses and that the
// rendezvous alone tells. And Gloo gives up a dead partner only after its own time limit, and may
// end its process where ranks disagree about sizes: so a tenant's executor must not call this.
// Tests and benchmarks do; what workers use instead, and why: docs/decisions/100-*.md.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "runtime/collective/collective.h"
#include "runtime/collective/rendezvous.h"

namespace outboard::collective {

struct GlooOptions {
  Member member;
  std::string address;                         // of this host, to listen at: "10.0.0.7"
  Rendezvous* rendezvous = nullptr;            // outlives the Collective
  std::chrono::milliseconds patience{30'000};  // for partners to come, and for one transfer
};

// Connects this rank with all others of its mesh; returns when all are there. Requires a process
// that ignores SIGPIPE: Gloo writes to connections that partners have closed.
// Errors: INVALID_ARGUMENT   an address that this host does not have; a rank outside of its mesh
//         DEADLINE_EXCEEDED  partners that did not come, named by rank
//         UNAVAILABLE        a connection that failed
absl::StatusOr<std::unique_ptr<Collective>> MakeGloo(const GlooOptions& options);

}  // namespace outboard::collective
