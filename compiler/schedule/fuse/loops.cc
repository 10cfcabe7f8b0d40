#include "compiler/schedule/fuse/loops.h"

#include <algorithm>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "compiler/ir/accessors.h"
#include "compiler/rewrite/simplify.h"
#include "compiler/rewrite/substitute.h"

namespace outboard::schedule {
namespace {

std::vector<const UOp*> ValuesOf(const Draft& draft) {
  std::vector<const UOp*> values;
  for (const DraftStore& stored : draft.stores) values.push_back(stored.value);
  return values;
}

// Returns whether `value` contains a reduction over `range` whose terms depend on `other`.
bool DependsInside(const UOp* value, const UOp* range, const UOp* other) {
  for (const UOp* node : PostOrder(value)) {
    if (node->op != Op::kReduceLoop ||
        std::find(node->src.begin() + 1, node->src.end(), range) == node->src.end())
      continue;
    const std::vector<const UOp*> inside = PostOrder(node->src[0]);
    if (std::find(inside.begin(), inside.end(), other) != inside.end()) return true;
  }
  return false;
}

// Reductions in each step of others.
absl::flat_hash_set<const UOp*> ScoresIn(const std::vector<const UOp*>& values) {
  const std::vector<const UOp*> steps = ScoreLoops(values);
  absl::flat_hash_set<const UOp*> scores;
  for (const UOp* value : values)
    for (const UOp* node : PostOrder(value)) {
      if (node->op != Op::kReduceLoop) continue;
      const auto own = [&](const UOp* step) {
        return std::find(node->src.begin() + 1, node->src.end(), step) != node->src.end();
      };
      const std::vector<const UOp*> inside = PostOrder(node->src[0]);
      if (std::ranges::any_of(steps, [&](const UOp* step) {
            return !own(step) && std::ranges::find(inside, step) != inside.end();
          }))
        scores.insert(node);
    }
  return scores;
}

}  // namespace

const UOp* WithLoopIds(Graph& graph, const UOp* root, int64_t& next_id) {
  Replacements by;
  for (const UOp* node : PostOrder(root))
    if (IsRange(node, RangeKind::kReduce)) by[node] = WithId(graph, node, next_id++);
  return Substitute(graph, root, by);
}

const UOp* WithLoopsOf(Graph& graph, const Draft& host, const UOp* value, bool& all) {
  const std::vector<const UOp*> values = ValuesOf(host);
  const auto theirs = Depths(values), ours = Depths({value});
  Replacements by;
  for (const UOp* node : PostOrder(value)) {
    if (node->op != Op::kReduceLoop || theirs.contains(node)) continue;
    bool found = false;
    for (const UOp* host_value : values)
      for (const UOp* other : PostOrder(host_value)) {
        if (found || other->op != Op::kReduceLoop || theirs.at(other) != ours.at(node)) continue;
        found = other->src.size() == node->src.size();
        for (size_t i = 1; found && i < node->src.size(); ++i)
          found = SameLength(other->src[i], node->src[i]);
        for (size_t i = 1; found && i < node->src.size(); ++i) by[node->src[i]] = other->src[i];
      }
    all &= found;
  }
  return Substitute(graph, value, by);
}

const UOp* WithScoreLoopsOf(Graph& graph, const Draft& host, const UOp* value) {
  const std::vector<const UOp*> values = ValuesOf(host);
  for (const UOp* mine : ScoreLoops({value}))
    for (const UOp* theirs : ScoreLoops(values)) {
      if (mine == theirs || !SameLength(mine, theirs)) continue;
      // A reduction over the host's range that depends on the guest's would lose it.
      if (DependsInside(value, theirs, mine)) continue;
      value = Substitute(graph, value, Replacements{{mine, theirs}});
      break;
    }
  return value;
}

bool SharesTwo(const Draft& host, const Draft& guest) {
  return std::count_if(guest.reads.begin(), guest.reads.end(),
                       [&](const UOp* node) { return host.reads.contains(node); }) >= 2;
}

bool SharesScore(Graph& graph, const Draft& host, const UOp* value) {
  // Factors are in another order until both are simplified as one kernel is.
  std::vector<const UOp*> values = ValuesOf(host);
  for (const UOp*& of_host : values) of_host = Simplify(graph, of_host);
  const absl::flat_hash_set<const UOp*> theirs = ScoresIn(values);
  return std::ranges::any_of(ScoresIn({Simplify(graph, value)}),
                             [&](const UOp* score) { return theirs.contains(score); });
}

std::optional<Draft> WithOrderOf(Graph& graph, const Draft& host, const Draft& guest) {
  if (!host.scores || !guest.scores || host.ranges.size() != guest.ranges.size() ||
      !SharesTwo(host, guest))
    return std::nullopt;
  Replacements by;
  absl::flat_hash_set<const UOp*> taken;
  for (const UOp* mine : guest.ranges)
    for (const UOp* theirs : host.ranges)
      if (SameLength(mine, theirs) && taken.insert(theirs).second) {
        by[mine] = theirs;
        break;
      }
  if (by.size() != guest.ranges.size()) return std::nullopt;
  if (std::all_of(by.begin(), by.end(), [](const auto& e) { return e.first == e.second; }))
    return std::nullopt;
  Draft ordered = guest;
  ordered.ranges = host.ranges;
  ordered.stores[0].place = Simplify(graph, Substitute(graph, guest.stores[0].place, by));
  ordered.stores[0].value = Simplify(graph, Substitute(graph, guest.stores[0].value, by));
  return ordered;
}

}  // namespace outboard::schedule
