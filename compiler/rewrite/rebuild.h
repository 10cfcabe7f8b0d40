// Small things that every rewrite needs: a node over other sources, and what a node is where it is
// a constant.
#pragma once

#include "absl/container/flat_hash_map.h"
#include "compiler/ir/uop.h"

namespace outboard {

// `node` over other sources, all given, symbolic dimensions included; such a dimension that has
// become a CONST is written as a number. nullptr where the node cannot be made.
const UOp* WithSourcesOrNull(Graph& graph, const UOp* node, Sources src);

// `node` over what each of its sources has become, all of which `become` has; itself where none has
// changed. Requires that the node can be made.
const UOp* WithSourcesBecome(Graph& graph, const UOp* node,
                             const absl::flat_hash_map<const UOp*, const UOp*>& become);

// The CONST that `node` is, or is a broadcast of by EXPAND and RESHAPE as Full makes it; else
// nullptr.
inline const UOp* ConstantOf(const UOp* node) {
  if (node->op == Op::kConst) return node;
  if (node->op == Op::kExpand) node = node->src[0];
  if (node->op != Op::kReshape) return nullptr;
  node = node->src[0];
  return node->op == Op::kConst ? node : nullptr;
}

// The operation that patterns see: a broadcast constant counts as CONST.
inline Op MatchedOp(const UOp* node) {
  if (node->op != Op::kExpand && node->op != Op::kReshape) return node->op;
  return ConstantOf(node) ? Op::kConst : node->op;
}

inline bool IsIntOrBool(DType dtype) { return IsInt(dtype) || IsBool(dtype); }

// The constant `value`, broadcast to the shape of `like`; integers wrap to `dtype`.
const UOp* IntLike(Graph& graph, DType dtype, int64_t value, const UOp* like);

}  // namespace outboard
