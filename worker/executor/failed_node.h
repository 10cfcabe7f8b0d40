// Which node of a graph a failure is about, beside the status that says what it is.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "compiler/ir/uop.h"

namespace outboard::worker {

struct FailedNode {
  uint32_t index = 0;  // in the canonical order of the graph
  std::string op;
};

// `status`, about `node` of the graph under `sink`. Requires a status that is not OK.
absl::Status AboutNode(absl::Status status, const UOp* sink, const UOp* node);
// The same of what FailedNodeOf has said.
absl::Status AboutNode(absl::Status status, const FailedNode& node);
// nullopt for a status that is about no node.
std::optional<FailedNode> FailedNodeOf(const absl::Status& status);

}  // namespace outboard::worker
