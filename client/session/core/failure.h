// The location of a failed computation: the fields that a status of Session::Await carries in
// addition to its code and message, so that a client that knows the program can name the line.
//
// The message contains all of it for people; the fields are for programs. Threads: pure functions.
// Errors: StatusOf and WithFailure keep the code that the cloud reported.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "client/session/request.h"
#include "proto/cloud.pb.h"

namespace outboard::session {

// An item and a node of its graph; only the client can map the node to the user's program.
struct Failure {
  uint64_t seq = 0;              // of the item that failed first; 0 once the message names its line
  std::optional<uint32_t> node;  // of its graph, in the canonical order
  std::string op;                // of that node
  std::string worker;            // name of the worker that ran it
  bool retryable = false;        // a retry may succeed

  friend bool operator==(const Failure&, const Failure&) = default;
};

// Returns the cloud's error for an item: its code, and a message that ends with the location: "...
// (node 3, ADD; item 17; worker box-1; a retry may succeed)".
absl::Status StatusOf(const proto::Failed& failed);

// Returns `status` with `failure` attached. Code and message do not change: an INVALID_ARGUMENT
// remains one, and OK remains OK.
absl::Status WithFailure(absl::Status status, const Failure& failure);
// Returns nullopt for a status without a Failure.
std::optional<Failure> FailureOf(const absl::Status& status);

// Number of Runs to remember; the value of a failed Run is awaited soon, or never.
inline constexpr size_t kRunsRememberedMax = 4096;

// Records the program lines that a session's Runs came from, outside of the graph so that equal
// computations remain equal graphs. Used to explain a failed Run where its value is awaited.
//
// Threads: one owner.
class Provenance {
 public:
  // Call for each Run of the session in the order of `seq`, also for one without an origin: it
  // counts as a step.
  void Remember(uint64_t seq, std::shared_ptr<const RunOrigin> origin);

  // Returns `status` extended by the step that failed first (counted in Runs, from 1), the line
  // that sent it and, if the cloud names the operation, the line that wrote it. Other statuses are
  // unchanged.
  absl::Status Explain(const absl::Status& status) const;
  // Returns the line that wrote a node of Run `seq`, or else the line that sent the Run; empty if
  // the Run is not known.
  std::string LineOf(uint64_t seq, uint32_t node) const;

 private:
  struct Run {
    uint64_t seq;
    uint64_t step;
    std::shared_ptr<const RunOrigin> origin;
  };

  const Run* Find(uint64_t seq) const;

  uint64_t steps_ = 0;
  std::deque<Run> runs_;  // seq rises
};

}  // namespace outboard::session
