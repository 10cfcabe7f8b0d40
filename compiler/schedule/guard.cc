#include "compiler/schedule/guard.h"

#include "compiler/ir/build.h"
#include "compiler/rewrite/simplify.h"
#include "compiler/schedule/padded_dims.h"

namespace outboard::schedule {

const UOp* JoinGuards(Graph& graph, const UOp* a, const UOp* b) {
  if (a == nullptr) return b;
  if (b == nullptr || a == b) return a;
  return Simplify(graph, Alu(graph, Op::kAnd, a, b));
}

const UOp* InRange(Graph& graph, const UOp* index, const Dim& extent) {
  const UOp* guard = nullptr;
  if (index->vmin < 0)
    guard = Simplify(graph, Alu(graph, Op::kCmpLt, ConstIndex(graph, -1), index));
  if (index->vmax < extent.min()) return guard;
  const UOp* const below = Simplify(graph, Alu(graph, Op::kCmpLt, index, ValueOf(graph, extent)));
  return JoinGuards(graph, guard, below);
}

void AppendConditions(const UOp* guard, std::vector<const UOp*>& conditions) {
  std::vector<const UOp*> stack = {guard};
  while (!stack.empty()) {
    const UOp* const c = stack.back();
    stack.pop_back();
    if (c->op == Op::kAnd && c->dtype == DType::kBool) {
      stack.push_back(c->src[1]);
      stack.push_back(c->src[0]);
    } else {
      conditions.push_back(c);
    }
  }
}

bool IsZero(const UOp* node) {
  return node->is_const() &&
         (IsFloat(node->dtype) ? node->float_value() == 0 : node->int_value() == 0);
}

bool DependsOn(const UOp* node, const UOp* range) {
  for (const UOp* n : PostOrder(node))
    if (n == range) return true;
  return false;
}

}  // namespace outboard::schedule
