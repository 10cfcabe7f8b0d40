#include "compiler/schedule/fuse/draft.h"

#include <algorithm>

#include "compiler/ir/accessors.h"
#include "compiler/optimize/cost.h"
#include "compiler/rewrite/rules/linear.h"

namespace outboard::schedule {

bool SameLength(const UOp* a, const UOp* b) {
  return RangeOf(a).extent() == RangeOf(b).extent() && a->src == b->src;
}

const UOp* WithId(Graph& graph, const UOp* range, int64_t id) {
  const RangeOf r(range);
  return graph.MakeChecked(Op::kRange, DType::kI64, range->src,
                           {id, r.extent(), static_cast<int64_t>(r.kind())});
}

double Points(const std::vector<const UOp*>& ranges) {
  double points = 1;
  for (const UOp* range : ranges) points *= static_cast<double>(RangeOf(range).extent());
  return points;
}

bool StartsWith(const std::vector<const UOp*>& ranges, const std::vector<const UOp*>& first) {
  return ranges.size() >= first.size() && std::equal(first.begin(), first.end(), ranges.begin());
}

bool MayBeEmptyBehind(const std::vector<const UOp*>& ranges, size_t rows) {
  return std::any_of(
      ranges.begin() + static_cast<int64_t>(rows), ranges.end(),
      [](const UOp* range) { return !range->src.empty() && range->src[0]->vmin <= 0; });
}

std::optional<Replacements> MatchPlace(const UOp* place, const UOp* index) {
  const LinearSum from = LinearOf(place), to = LinearOf(index);
  if (from.constant != to.constant || from.terms.size() != to.terms.size()) return std::nullopt;
  Replacements by;
  for (const auto& [term, coefficient] : from.terms) {
    const UOp* other = nullptr;
    for (const auto& [t, c] : to.terms)
      if (c == coefficient) other = t;
    if (other == nullptr || other->op != Op::kRange || term->op != Op::kRange) return std::nullopt;
    if (other == term) continue;
    if (!IsRange(other, RangeKind::kReduce) || !SameLength(other, term)) return std::nullopt;
    by[term] = other;
  }
  return by;
}

std::optional<double> CostAgain(const UOp* value, const Replacements& by, const CostTable& costs) {
  absl::flat_hash_set<const UOp*> depends;
  double cost = 0;
  for (const UOp* node : PostOrder(value)) {
    const bool does =
        by.contains(node) || std::any_of(node->src.begin(), node->src.end(),
                                         [&](const UOp* s) { return depends.contains(s); });
    if (!does) continue;
    depends.insert(node);
    if (node->op == Op::kReduceLoop) return std::nullopt;
    if (node->dtype == DType::kI64 && node->op != Op::kLoad) continue;  // index arithmetic
    cost += optimize::OpCost(node->op, costs);
  }
  return cost;
}

absl::flat_hash_map<const UOp*, int> Depths(const std::vector<const UOp*>& values) {
  absl::flat_hash_map<const UOp*, int> depth, of_loops;
  for (const UOp* value : values)
    for (const UOp* node : PostOrder(value)) {
      int most = 0;
      for (const UOp* s : node->src) most = std::max(most, depth[s]);
      if (node->op == Op::kReduceLoop) of_loops[node] = most++;
      depth[node] = most;
    }
  return of_loops;
}

std::vector<const UOp*> ScoreLoops(const std::vector<const UOp*>& values) {
  absl::flat_hash_map<const UOp*, absl::flat_hash_set<const UOp*>> open;  // that a node depends on
  absl::flat_hash_set<const UOp*> found;
  for (const UOp* value : values)
    for (const UOp* node : PostOrder(value)) {
      absl::flat_hash_set<const UOp*>& mine = open[node];
      if (IsRange(node, RangeKind::kReduce)) mine.insert(node);
      const bool loop = node->op == Op::kReduceLoop;
      for (size_t i = 0; i < (loop ? 1 : node->src.size()); ++i)
        mine.insert(open.at(node->src[i]).begin(), open.at(node->src[i]).end());
      if (!loop) continue;
      for (size_t i = 1; i < node->src.size(); ++i) mine.erase(node->src[i]);
      found.insert(mine.begin(), mine.end());
    }
  std::vector<const UOp*> loops(found.begin(), found.end());
  std::sort(loops.begin(), loops.end(), HasSmallerId);
  return loops;
}

}  // namespace outboard::schedule
