#include "compiler/optimize/operands/panel.h"

#include <algorithm>
#include <bit>
#include <tuple>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "base/check.h"

namespace outboard::codegen {
namespace {

bool IsNested(const LoopNest& kernel, const UOp* node) {
  return node->op == Op::kReduceLoop && (kernel.DepsOf(node) & ~kernel.OutputSet()) != 0;
}
bool IsOuter(const LoopNest& kernel, const UOp* node) {
  return node->op == Op::kReduceLoop && !IsNested(kernel, node);
}

// Nodes that are computed with a reduction inside of another one, and what these reductions depend
// on.
absl::flat_hash_map<const UOp*, RangeSet> NestedValues(const LoopNest& kernel) {
  absl::flat_hash_map<const UOp*, RangeSet> nested;
  for (const UOp* node : kernel.nodes) {
    RangeSet deps = IsNested(kernel, node) ? kernel.DepsOf(node) : 0;
    if (node->op != Op::kReduceLoop)
      for (const UOp* s : node->src)
        if (const auto found = nested.find(s); found != nested.end()) deps |= found->second;
    if (deps != 0) nested[node] = deps;
  }
  return nested;
}

// `roots` and what is computed with them, down to `stop` and to reductions of other loops.
template <typename Stop>
std::vector<const UOp*> Below(const std::vector<const UOp*>& roots, const Stop& stop) {
  std::vector<const UOp*> found, stack = roots;
  absl::flat_hash_set<const UOp*> seen;
  while (!stack.empty()) {
    const UOp* const node = stack.back();
    stack.pop_back();
    if (!seen.insert(node).second) continue;
    found.push_back(node);
    if (stop(node)) continue;
    stack.insert(stack.end(), node->src.begin(), node->src.end());
  }
  return found;
}

}  // namespace

std::vector<const UOp*> PanelsOf(const LoopNest& kernel, bool ends) {
  const auto nested = NestedValues(kernel);
  if (nested.empty()) return {};
  const auto fits = [&](const UOp* node) {
    // What depends on more, as a product with another matrix does, is not read as it is.
    const auto found = nested.find(node);
    for (size_t i = 0; i < kernel.ranges.size() && !ends; ++i)
      if ((kernel.DepsOf(node) >> i & 1) && !kernel.ranges[i].node->src.empty()) return false;
    return found != nested.end() && found->second == kernel.DepsOf(node) && IsFloat(node->dtype) &&
           (found->second & kernel.OutputSet()) != 0 &&
           std::popcount(found->second & ~kernel.OutputSet()) == 1;
  };
  absl::flat_hash_set<const UOp*> panels;
  for (const ReduceGroup& group : kernel.groups) {
    if (group.deps & ~kernel.OutputSet()) continue;
    std::vector<const UOp*> roots;
    for (const UOp* node : group.nodes) roots.push_back(node->src[0]);
    const auto stop = [&](const UOp* node) {
      return fits(node) || node->op == Op::kReduceLoop || !nested.contains(node);
    };
    for (const UOp* node : Below(roots, stop))
      if (fits(node)) panels.insert(node);
  }
  // What several of these need is one as well.
  absl::flat_hash_map<const UOp*, int> readers, users;
  absl::flat_hash_map<const UOp*, const UOp*> user;
  for (const UOp* node : kernel.nodes)
    for (const UOp* s : node->src) {
      ++users[s];
      user[s] = node;
    }
  for (const UOp* panel : panels)
    for (const UOp* node : Below({panel}, [&](const UOp* n) {
           return IsOuter(kernel, n) || (n != panel && panels.contains(n));
         }))
      if (IsNested(kernel, node)) ++readers[node];
  for (const UOp* node : kernel.nodes) {
    if (const auto found = readers.find(node); found == readers.end() || found->second < 2)
      continue;
    const UOp* shared = node;
    while (users.at(shared) == 1 && fits(user.at(shared))) shared = user.at(shared);
    if (fits(shared)) panels.insert(shared);
  }
  std::vector<const UOp*> ordered;
  for (const UOp* node : kernel.nodes)
    if (panels.contains(node)) ordered.push_back(node);
  return ordered;
}

int PanelRange(const LoopNest& kernel, const UOp* value) {
  return std::countr_zero(kernel.DepsOf(value) & ~kernel.OutputSet());
}

PanelPlaces PlacePanels(const LoopNest& kernel, const LoopPlan& plan) {
  PanelPlaces out;
  absl::flat_hash_map<const UOp*, size_t> number;
  for (size_t i = 0; i < plan.panels.size(); ++i) number[plan.panels[i].value] = i;

  // What is computed when, as (level, group, whether the group itself, panel), and the last reader.
  using When = std::tuple<size_t, size_t, bool, size_t>;
  std::vector<When> made, read(plan.panels.size());
  const auto reads = [&](const std::vector<const UOp*>& roots, const UOp* self, const When& when) {
    for (const UOp* node : Below(roots, [&](const UOp* n) {
           return IsOuter(kernel, n) || (n != self && number.contains(n));
         }))
      if (const auto panel = number.find(node); panel != number.end() && node != self)
        read[panel->second] = std::max(read[panel->second], when);
  };
  for (size_t i = 0; i < plan.panels.size(); ++i) {
    const UOp* const value = plan.panels[i].value;
    PanelPlace place;
    const RangeSet rows = kernel.DepsOf(value) & kernel.OutputSet();
    place.level = std::max(plan.LevelOf(rows), static_cast<size_t>(plan.task_loops));
    const std::vector<const UOp*> below = PostOrder(value);
    for (size_t g = 0; g < kernel.groups.size(); ++g) {
      if (kernel.groups[g].deps & ~kernel.OutputSet()) continue;
      for (const UOp* node : kernel.groups[g].nodes)
        if (std::find(below.begin(), below.end(), node) != below.end()) place.group = g + 1;
    }
    place.layout = LayOut(kernel, plan, plan.panels[i]);
    made.emplace_back(place.level, place.group, false, i);
    reads({value}, value, made.back());
    out.places.push_back(std::move(place));
  }
  for (size_t g = 0; g < kernel.groups.size(); ++g) {
    if (kernel.groups[g].deps & ~kernel.OutputSet()) continue;
    const size_t level =
        std::max(plan.LevelOf(kernel.groups[g].deps), static_cast<size_t>(plan.task_loops));
    for (const UOp* node : kernel.groups[g].nodes)
      reads({node->src[0]}, nullptr, {level, g, true, 0});
  }

  std::vector<bool> gone(plan.panels.size());
  std::vector<size_t> order(plan.panels.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return made[a] < made[b]; });
  for (const size_t i : order) {
    PanelPlace& place = out.places[i];
    place.first_byte = -1;
    for (const size_t k : order) {
      if (k == i) break;
      const PanelPlace& other = out.places[k];
      // In a loop inside of the other's level, its next iteration would read overwritten memory.
      if (gone[k] || read[k] > made[i] || other.level != place.level ||
          other.layout.bytes() != place.layout.bytes() ||
          kernel.DepsOf(plan.panels[k].value) != kernel.DepsOf(plan.panels[i].value))
        continue;
      gone[k] = true;
      place.first_byte = other.first_byte;
      break;
    }
    if (place.first_byte >= 0) continue;
    place.first_byte = out.bytes;
    out.bytes += place.layout.bytes();
  }
  return out;
}

}  // namespace outboard::codegen
