#include "compiler/schedule/gather/one_hot.h"

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "compiler/ir/accessors.h"
#include "compiler/ir/build.h"
#include "compiler/rewrite/simplify.h"
#include "compiler/schedule/gather/gather.h"
#include "compiler/schedule/lower.h"
#include "compiler/schedule/padded_dims.h"

namespace outboard::schedule {
namespace {

bool IsBroadcastZero(const UOp* node) {
  while (IsMovement(node->op)) node = node->src[0];
  return IsZero(node);
}

}  // namespace

absl::StatusOr<OneHot> FindOneHot(Graph& graph, const UOp* reduce) {
  const UOp& x = *reduce->src[0];
  const auto elements = [](const UOp* n) { return static_cast<double>(PaddedSize(n->shape)); };
  double loops = elements(&x) / std::max(1.0, elements(reduce));
  if (ReduceOf(reduce).op() != Op::kAdd || x.op != Op::kWhere || !IsBroadcastZero(x.src[2]) ||
      elements(&x) == 0)
    return OneHot{nullptr, loops};
  std::vector<const UOp*> index, ranges;
  for (int i = 0; i < x.rank(); ++i) {
    const bool reduced = ReduceOf(reduce).reduces(i);
    const RangeKind kind = reduced ? RangeKind::kReduce : RangeKind::kOutput;
    index.push_back(x.shape[i] == Dim(1) ? ConstIndex(graph, 0)
                                         : RangeOver(graph, i, x.shape[i], kind));
    if (reduced && x.shape[i] != Dim(1)) ranges.push_back(index.back());
  }
  OB_ASSIGN_OR_RETURN(const UOp* condition, IndexExpression(graph, x.src[0], index));
  std::vector<const UOp*> conditions = {Simplify(graph, condition)};
  bool solved = false;
  for (size_t i = 0; i < conditions.size(); ++i) {
    const UOp* const c = conditions[i];
    if (c->op == Op::kAnd) {
      conditions.insert(conditions.end(), c->src.begin(), c->src.end());
    } else if (c->op == Op::kCmpEq) {
      const auto solution = SolveEquality(graph, c->src[0], c->src[1], ranges);
      if (!solution) continue;
      ranges.erase(std::find(ranges.begin(), ranges.end(), solution->range));
      loops /= static_cast<double>(RangeOf(solution->range).extent());
      solved = true;
    }
  }
  return OneHot{solved ? &x : nullptr, loops};
}

}  // namespace outboard::schedule
