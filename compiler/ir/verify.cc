// The rules about whole graphs; those of single nodes are in spec/.
#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "compiler/ir/accessors.h"
#include "compiler/ir/limits.h"
#include "compiler/ir/spec.h"

namespace outboard {

absl::Status VerifyGraph(const UOp* root, Level level) {
  if (root->op != Op::kSink)
    return absl::InvalidArgumentError("the root of a graph must be a SINK");
  const std::vector<const UOp*> nodes = PostOrder(root);
  std::map<int64_t, const UOp*> vars;
  for (size_t i = 0; i < nodes.size(); ++i) {
    const UOp& node = *nodes[i];
    const auto broken = [&](absl::string_view rule) {
      return absl::InvalidArgumentError(
          absl::StrCat("node ", i, " (", std::string(Name(node.op)), "): ", rule));
    };
    if (!IsLegalAt(node.op, level))
      return broken(level == Level::kKernel ? "is not allowed in a kernel"
                    : IsCollective(node.op) ? "is between devices, which the cloud alone decides"
                                            : "is not allowed in a tensor graph");
    if (level != Level::kKernel && node.op == Op::kExp2 && !node.arg.empty())
      return broken("by a unit is for kernels alone");
    if (level == Level::kTensor && IsRank(&node))
      return broken(absl::StrCat("slot ", limits::kRankSlot, " is the rank, which only the cloud ",
                                 "may read"));
    if (node.op == Op::kBuffer) return broken("exists inside a client only");
    if (node.op == Op::kSink && &node != root) return broken("may only be the root");
    if (node.op == Op::kVar && vars.emplace(node.arg[0], &node).first->second != &node)
      return broken(absl::StrCat("slot ", node.arg[0], " has two ranges"));
  }
  if (level != Level::kKernel) {
    if (!root->arg.empty() && root->arg[0] != 1)
      return absl::InvalidArgumentError("SINK: only a kernel may have copies");
    if (SteadySlots(root) != 0)
      return absl::InvalidArgumentError("SINK: only a kernel has slots");
    for (const UOp* result : root->src)
      if (result->dtype == DType::kVoid)
        return absl::InvalidArgumentError("SINK: a result is no value");
    int64_t next_slot = 0;
    for (const UOp* node : PostOrder(root, /*into_functions=*/false))
      if (node->op == Op::kParam && node->arg[0] != next_slot++)
        return absl::InvalidArgumentError(absl::StrCat("PARAM: slot ", node->arg[0],
                                                       " comes where slot ", next_slot - 1,
                                                       " should be used first"));
  } else {
    for (const UOp* store : root->src)
      if (store->op != Op::kStore)
        return absl::InvalidArgumentError("SINK: a kernel's results are STOREs");
  }
  return absl::OkStatus();
}

std::vector<const UOp*> ParamsOf(const UOp* root) {
  std::vector<const UOp*> params;
  for (const UOp* node : PostOrder(root, /*into_functions=*/false))
    if (node->op == Op::kParam) params.push_back(node);
  std::sort(params.begin(), params.end(),
            [](const UOp* a, const UOp* b) { return a->arg[0] < b->arg[0]; });
  return params;
}

std::vector<const UOp*> VarsOf(const UOp* root) {
  std::vector<const UOp*> vars;
  for (const UOp* node : PostOrder(root))
    if (node->op == Op::kVar) vars.push_back(node);
  std::sort(vars.begin(), vars.end(),
            [](const UOp* a, const UOp* b) { return a->arg[0] < b->arg[0]; });
  return vars;
}

}  // namespace outboard
