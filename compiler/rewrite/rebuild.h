// Helpers that every rewrite needs: a node with other sources, and the constant that a node
// represents.
#pragma once

#include "absl/container/flat_hash_map.h"
#include "compiler/ir/uop.h"

namespace outboard {

// Returns `node` with all sources replaced by `src`, symbolic dimensions included; a dimension that
// has become a CONST is stored as a number. nullptr if the node cannot be made.
const UOp* WithSourcesOrNull(Graph& graph, const UOp* node, Sources src);

// Returns `node` with each source replaced by its value in `become`, which must contain all of
// them; `node` itself if none has changed. Requires that the node can be made.
const UOp* WithSourcesBecome(Graph& graph, const UOp* node,
                             const absl::flat_hash_map<const UOp*, const UOp*>& become);

// Returns the CONST that `node` is or broadcasts by EXPAND and RESHAPE, as Full makes it; else
// nullptr.
inline const UOp* ConstantOf(const UOp* node) {
  if (node->op == Op::kConst) return node;
  if (node->op == Op::kExpand) node = node->src[0];
  if (node->op != Op::kReshape) return nullptr;
  node = node->src[0];
  return node->op == Op::kConst ? node : nullptr;
}

// Returns the operation that patterns match: a broadcast constant counts as CONST.
inline Op MatchedOp(const UOp* node) {
  if (node->op != Op::kExpand && node->op != Op::kReshape) return node->op;
  return ConstantOf(node) ? Op::kConst : node->op;
}

inline bool IsIntOrBool(DType dtype) { return IsInt(dtype) || IsBool(dtype); }

// The constant `value`, broadcast to the shape of `like`; integers wrap to `dtype`.
const UOp* IntLike(Graph& graph, DType dtype, int64_t value, const UOp* like);

}  // namespace outboard
