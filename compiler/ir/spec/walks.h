// Steps of what checks of new nodes walk beyond a look at the node: bodies of functions, and sums
// and products of dimensions. All three take them from Graph::walk_budget. Threads: those of the
// Graph.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "compiler/ir/limits.h"
#include "compiler/ir/uop.h"

namespace outboard::spec {

// Takes `steps` of a walk over `what`, such as "sums of dimensions".
// Errors: RESOURCE_EXHAUSTED  there are not so many left; says what took the last, and the limit
absl::Status TakeSteps(Graph& graph, int64_t steps, absl::string_view what);

// While it lives, `graph` has limits::kWalkStepsMax steps: for what somebody else has sent, and
// what is made of that. Afterwards it has as many as before.
class LimitedWalks {
 public:
  explicit LimitedWalks(Graph& graph) : graph_(graph), before_(graph.walk_budget) {
    graph.walk_budget = limits::kWalkStepsMax;
  }
  ~LimitedWalks() { graph_.walk_budget = before_; }
  LimitedWalks(const LimitedWalks&) = delete;
  LimitedWalks& operator=(const LimitedWalks&) = delete;

 private:
  Graph& graph_;
  const int64_t before_;
};

}  // namespace outboard::spec
