// Replaces nodes of a graph by others: loops by numbers, VARs by their bindings, a value by a load
// of it.
#pragma once

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "compiler/ir/uop.h"

namespace outboard {

// Returns `root` with every node that is a key replaced by its value. Replacements are not searched
// for keys themselves. Symbolic dimensions are replaced too. A replacement must have the type and
// shape of the node that it replaces (a VAR in a dimension may become a number); a node that cannot
// be made with its new sources is a bug in the caller.
//
// Cost: O(nodes under root, but for those under keys alone). Returns root itself if it contains
// none of the keys.
const UOp* Substitute(Graph& graph, const UOp* root,
                      const absl::flat_hash_map<const UOp*, const UOp*>& by);

// The same, but `remake` makes each node from its new sources.
const UOp* Substitute(Graph& graph, const UOp* root,
                      const absl::flat_hash_map<const UOp*, const UOp*>& by,
                      absl::FunctionRef<const UOp*(const UOp* node, Sources src)> remake);

}  // namespace outboard
