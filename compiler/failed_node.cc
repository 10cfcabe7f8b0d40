#include "compiler/failed_node.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace outboard {
namespace {
constexpr char kPayload[] = "outboard/node";  // "index op"
}  // namespace

absl::Status AboutNode(absl::Status status, const UOp* sink, const UOp* node) {
  const std::vector<const UOp*> order = PostOrder(sink);
  const auto index = std::find(order.begin(), order.end(), node) - order.begin();
  return AboutNode(std::move(status),
                   FailedNode{static_cast<uint32_t>(index), std::string(Name(node->op))});
}

absl::Status AboutNode(absl::Status status, const FailedNode& node) {
  const std::string text = absl::StrCat(node.index, " ", node.op);
  // By a view: clang spells the name of the constructor from a string in another way than the gcc
  // that Debian's Abseil is built with.
  status.SetPayload(kPayload, absl::Cord(absl::string_view(text)));
  return status;
}

std::optional<FailedNode> FailedNodeOf(const absl::Status& status) {
  const absl::optional<absl::Cord> payload = status.GetPayload(kPayload);
  if (!payload) return std::nullopt;
  const std::vector<std::string> parts = absl::StrSplit(std::string(*payload), ' ');
  FailedNode node;
  if (parts.size() != 2 || !absl::SimpleAtoi(parts[0], &node.index)) return std::nullopt;
  node.op = parts[1];
  return node;
}

}  // namespace outboard
