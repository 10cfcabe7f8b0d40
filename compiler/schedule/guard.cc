#include "compiler/schedule/guard.h"

#include "compiler/ir/build.h"
#include "compiler/ir/expr.h"
#include "compiler/rewrite/conjuncts.h"
#include "compiler/rewrite/simplify.h"
#include "compiler/schedule/padded_dims.h"

namespace outboard::schedule {

const UOp* AndGuards(Graph& graph, const UOp* a, const UOp* b) {
  if (a == nullptr) return b;
  if (b == nullptr || a == b) return a;
  return Simplify(graph, Alu(graph, Op::kAnd, a, b));
}

const UOp* InRange(Graph& graph, const UOp* index, const Dim& extent) {
  const Expr i(graph, index);
  const UOp* guard = nullptr;
  if (index->vmin < 0) guard = Simplify(graph, (i > -1).node());
  if (index->vmax < extent.min()) return guard;
  const UOp* const below = Simplify(graph, (i < i.of(ValueOf(graph, extent))).node());
  return AndGuards(graph, guard, below);
}

void AppendConditions(const UOp* guard, std::vector<const UOp*>& conditions) {
  const std::vector<const UOp*> conjuncts = ConjunctsOf(guard);
  conditions.insert(conditions.end(), conjuncts.begin(), conjuncts.end());
}

bool DependsOn(const UOp* node, const UOp* range) {
  for (const UOp* n : PostOrder(node))
    if (n == range) return true;
  return false;
}

}  // namespace outboard::schedule
