// Replacing nodes of a graph by others: loops by numbers, VARs by what they are bound to, a value
// by the load of it.
#pragma once

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "compiler/ir/uop.h"

namespace outboard {

// `root` with every node that is a key replaced by its value; what is put in is not looked into.
// Symbolic dimensions are replaced too. A replacement must have the type and shape of what it
// replaces (a VAR in a dimension may become a number); a node that cannot be made over its new
// sources is a bug of the caller's.
//
// Cost: O(nodes under root). Returns root itself where it has none of the keys.
const UOp* Substitute(Graph& graph, const UOp* root,
                      const absl::flat_hash_map<const UOp*, const UOp*>& by);

// The same, where `remake` says what a node becomes over its new sources.
const UOp* Substitute(Graph& graph, const UOp* root,
                      const absl::flat_hash_map<const UOp*, const UOp*>& by,
                      absl::FunctionRef<const UOp*(const UOp* node, Sources src)> remake);

}  // namespace outboard
