#include "compiler/schedule/guard.h"

#include "compiler/ir/build.h"
#include "compiler/rewrite/simplify.h"

namespace outboard::schedule {

const UOp* JoinGuards(Graph& graph, const UOp* a, const UOp* b) {
  if (a == nullptr) return b;
  if (b == nullptr || a == b) return a;
  return Simplify(graph, Alu(graph, Op::kAnd, a, b));
}

const UOp* InRange(Graph& graph, const UOp* index, int64_t extent) {
  const UOp* guard = nullptr;
  if (index->vmin < 0)
    guard = Simplify(graph, Alu(graph, Op::kCmpLt, ConstIndex(graph, -1), index));
  if (index->vmax < extent) return guard;
  const UOp* const below =
      Simplify(graph, Alu(graph, Op::kCmpLt, index, ConstIndex(graph, extent)));
  return JoinGuards(graph, guard, below);
}

}  // namespace outboard::schedule
