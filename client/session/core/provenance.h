// Which lines of the program a session's Runs came from: beside the graph and never inside it, so
// that equal computations stay equal graphs. A failed Run is explained by it where its value is
// awaited.
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

// Runs that are remembered; one that failed is asked for soon, or never.
inline constexpr size_t kRunsRememberedMax = 4096;

class Provenance {
 public:
  // Every Run of the session, in the order of `seq`, also one without an origin: it counts as a
  // step.
  void Remember(uint64_t seq, std::shared_ptr<const RunOrigin> origin);

  // `status` with the step that failed first (counted in Runs, from 1), the line that sent it and,
  // where the cloud names the operation, the line that wrote that. Other statuses are unchanged.
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
