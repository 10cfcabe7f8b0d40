// Which lines of the program a Run came from: beside the graph and never inside it, so that equal
// computations stay equal graphs. A Run that failed is explained by it where its value is asked
// for.
//
// Threads: every method may be called from any thread.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/status/status.h"
#include "client/tensor/error.h"

namespace outboard::internal {

// Runs that are remembered; one that failed is asked for soon, or never.
inline constexpr size_t kRunsRememberedMax = 4096;

// The line that first wrote each node of a graph, in the canonical order.
using Lines = std::vector<At>;

// The Runs of one engine.
class Provenance {
 public:
  // Run `seq`, which `at` sent.
  void Remember(uint64_t seq, const At& at, std::shared_ptr<const Lines> lines);

  // `status` with the step that failed first (counted in Runs, from 1), the line that sent it and,
  // where the cloud knows the operation, the line that wrote that. Other statuses are unchanged.
  absl::Status Explain(const absl::Status& status) const;

 private:
  struct Run {
    uint64_t seq;
    uint64_t step;
    At at;
    std::shared_ptr<const Lines> lines;
  };

  mutable std::mutex mutex_;
  uint64_t steps_ = 0;
  std::deque<Run> runs_;  // seq rises
};

}  // namespace outboard::internal
