// Attaches to an error of sharding the node of the client's graph that it is about, and reads it
// back, so that a client can name the line that wrote the node. The status keeps its code,
// INVALID_ARGUMENT or any other. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "compiler/ir/uop.h"

namespace outboard::shard {

struct RefusedNode {
  uint32_t index = 0;  // in PostOrder of the graph's SINK
  std::string op;
  friend bool operator==(const RefusedNode&, const RefusedNode&) = default;
};

// `status`, about `node` of the graph under `sink`. Requires a status that is not OK.
absl::Status AboutNode(absl::Status status, const UOp* sink, const UOp* node);
// Returns nullopt for a status without a node.
std::optional<RefusedNode> RefusedNodeOf(const absl::Status& status);

}  // namespace outboard::shard
