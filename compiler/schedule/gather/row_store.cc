#include "compiler/schedule/gather/row_store.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "compiler/ir/build.h"
#include "compiler/rewrite/simplify.h"
#include "compiler/rewrite/substitute.h"
#include "compiler/schedule/gather/gather.h"
#include "compiler/schedule/guard.h"
#include "compiler/schedule/padded_dims.h"

namespace outboard::schedule {
namespace {

// A range, and the one value of it that matters to a STORE; and the STORE for it alone.
struct Change {
  const UOp* range = nullptr;
  const UOp* value = nullptr;
  const UOp* store = nullptr;
};

std::optional<Change> FindChange(Graph& g, const UOp* store,
                                 const std::vector<const UOp*>& ranges) {
  const UOp& value = *store->src[1];
  if (store->src.size() != 2 || value.op != Op::kWhere) return std::nullopt;
  const UOp& old = *value.src[2];
  if (old.op != Op::kLoad || old.src.size() != 1 || old.src[0] != store->src[0])
    return std::nullopt;
  std::vector<const UOp*> conditions;
  AppendConditions(value.src[0], conditions);
  for (const UOp* condition : conditions) {
    if (condition->op != Op::kCmpEq) continue;
    const auto solution = SolveEquality(g, condition->src[0], condition->src[1], ranges);
    if (!solution || !solution->value->of_vars) continue;
    const UOp* gate = solution->guard;
    for (const UOp* other : conditions)
      if (other != condition) gate = AndGuards(g, gate, other);
    std::vector<const UOp*> src = {store->src[0], value.src[1]};
    if (gate != nullptr) src.push_back(gate);
    return Change{solution->range, solution->value, g.MakeChecked(Op::kStore, DType::kVoid, src)};
  }
  return std::nullopt;
}

}  // namespace

const UOp* StoreChangedRows(Graph& graph, const UOp* ast) {
  std::vector<const UOp*> ranges, stores;
  for (const UOp* node : PostOrder(ast))
    if (IsRange(node, RangeKind::kOutput)) ranges.push_back(node);
  Change first;
  for (const UOp* store : ast->src) {
    const std::optional<Change> change = FindChange(graph, store, ranges);
    if (!change) return ast;
    if (stores.empty()) first = *change;
    if (change->range != first.range || change->value != first.value) return ast;
    stores.push_back(change->store);
  }
  const UOp* const sink = graph.MakeChecked(Op::kSink, DType::kVoid, stores, ast->arg);
  return Simplify(graph, Substitute(graph, sink, {{first.range, first.value}}));
}

}  // namespace outboard::schedule
