// Records the program lines that a session's Runs came from, outside of the graph so that equal
// computations remain equal graphs. Used to explain a failed Run where its value is awaited.
//
// Threads: one owner.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>

#include "absl/status/status.h"
#include "client/session/request.h"

namespace outboard::transport {

// Number of Runs to remember; the value of a failed Run is awaited soon, or never.
inline constexpr size_t kRunsRememberedMax = 4096;

class Provenance {
 public:
  // Call for each Run of the session in the order of `seq`, also for one without an origin: it
  // counts as a step.
  void Remember(uint64_t seq, std::shared_ptr<const RunOrigin> origin);

  // Returns `status` extended by the step that failed first (counted in Runs, from 1), the line
  // that sent it and, if the cloud names the operation, the line that wrote it. Other statuses are
  // unchanged.
  absl::Status Explain(const absl::Status& status) const;

 private:
  struct Run {
    uint64_t seq;
    uint64_t step;
    std::shared_ptr<const RunOrigin> origin;
  };

  uint64_t steps_ = 0;
  std::deque<Run> runs_;  // seq rises
};

}  // namespace outboard::transport
