#include "compiler/shard/refused_node.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace outboard::shard {
namespace {
constexpr char kPayload[] = "outboard/shard-node";  // "index op"
}  // namespace

absl::Status AboutNode(absl::Status status, const UOp* sink, const UOp* node) {
  const std::vector<const UOp*> order = PostOrder(sink);
  const auto index = std::find(order.begin(), order.end(), node) - order.begin();
  const std::string text = absl::StrCat(index, " ", std::string(Name(node->op)));
  status.SetPayload(kPayload, absl::Cord(absl::string_view(text)));
  return status;
}

std::optional<RefusedNode> RefusedNodeOf(const absl::Status& status) {
  const absl::optional<absl::Cord> payload = status.GetPayload(kPayload);
  if (!payload) return std::nullopt;
  const std::vector<std::string> parts = absl::StrSplit(std::string(*payload), ' ');
  RefusedNode node;
  if (parts.size() != 2 || !absl::SimpleAtoi(parts[0], &node.index)) return std::nullopt;
  node.op = parts[1];
  return node;
}

}  // namespace outboard::shard
