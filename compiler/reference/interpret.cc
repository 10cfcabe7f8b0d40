#include "compiler/reference/interpret.h"

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/ir/print.h"
#include "compiler/reference/graph_run.h"

namespace outboard {

absl::StatusOr<std::vector<HostTensor>> Interpret(const UOp* sink,
                                                  std::span<const HostTensor> params,
                                                  std::span<const Binding> bindings,
                                                  const InterpretOptions& options) {
  if (sink->op != Op::kSink)
    return absl::InvalidArgumentError("the root of a graph must be a SINK");
  reference::WalkPlans plans;
  reference::Budget budget(options.work_max, options.bytes_max);  // before all that gives back
  reference::GraphRun run(params, bindings, options.stored_elements, &plans, &budget);
  OB_RETURN_IF_ERROR(run.Begin(sink));
  OB_ASSIGN_OR_RETURN(const UOp* collective, run.Advance());
  if (collective != nullptr)
    return absl::InvalidArgumentError(
        absl::StrCat(NodeToString(collective), ": needs a group of ranks"));
  return run.Results();
}

}  // namespace outboard
