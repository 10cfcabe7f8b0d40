// The budget of walks, and the error of a graph that is over it.
#include "compiler/ir/spec/walks.h"

#include "absl/strings/str_cat.h"

namespace outboard::spec {

absl::Status TakeSteps(Graph& graph, int64_t steps, absl::string_view what) {
  graph.walk_budget -= steps;
  if (graph.walk_budget >= 0) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      what, ": the last of over ", limits::kWalkStepsMax,
      " steps, the most that checks of one graph may take for nodes and sources of functions' "
      "bodies, and for sums and products of dimensions, together"));
}

}  // namespace outboard::spec
