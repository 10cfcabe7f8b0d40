// Attaches to an error status the graph node that caused it, and reads it back.
// Pure functions.
// The status keeps its code, INVALID_ARGUMENT or any other.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "compiler/ir/uop.h"

namespace outboard {

struct FailedNode {
  uint32_t index = 0;  // in the canonical order of the graph
  std::string op;
  friend bool operator==(const FailedNode&, const FailedNode&) = default;
};

// `status`, about `node` of the graph under `sink`. Requires a status that is not OK.
absl::Status AboutNode(absl::Status status, const UOp* sink, const UOp* node);
// The same for a node that FailedNodeOf returned.
absl::Status AboutNode(absl::Status status, const FailedNode& node);
// Returns nullopt for a status without a node.
std::optional<FailedNode> FailedNodeOf(const absl::Status& status);

}  // namespace outboard
