#include "compiler/rewrite/rebuild.h"

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "compiler/ir/build.h"

namespace outboard {

const UOp* WithSourcesOrNull(Graph& graph, const UOp* node, Sources src) {
  const size_t own = static_cast<size_t>(node->own_sources());
  bool number = false;
  for (size_t i = own; i < src.size(); ++i) number = number || src[i]->is_const();
  if (!number) {
    auto made = graph.Make(node->op, node->dtype, src, node->arg);
    return made.ok() ? *made : nullptr;
  }
  std::vector<const UOp*> sources(src.begin(), src.begin() + own);
  std::vector<int64_t> arg(node->arg.begin(), node->arg.end());
  size_t next = own;
  for (int64_t& a : arg) {
    if (a != kSymbolicDim) continue;
    const UOp* const dim = src[next++];
    if (dim->is_const())
      a = dim->int_value();
    else
      sources.push_back(dim);
  }
  auto made = graph.Make(node->op, node->dtype, sources, arg);
  return made.ok() ? *made : nullptr;
}

const UOp* WithSourcesBecome(Graph& graph, const UOp* node,
                             const absl::flat_hash_map<const UOp*, const UOp*>& become) {
  std::vector<const UOp*> src;
  for (const UOp* s : node->src) src.push_back(become.at(s));
  if (std::equal(src.begin(), src.end(), node->src.begin())) return node;
  const UOp* const now = WithSourcesOrNull(graph, node, src);
  OB_CHECK(now != nullptr);
  return now;
}

const UOp* IntLike(Graph& graph, DType dtype, int64_t value, const UOp* like) {
  return Full(graph, ConstInt(graph, dtype, WrapTo(dtype, value)), like->shape);
}

}  // namespace outboard
