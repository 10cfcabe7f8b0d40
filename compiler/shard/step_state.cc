#include "compiler/shard/step_state.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "compiler/ir/accessors.h"
#include "compiler/ir/spec.h"
#include "compiler/shard/rules.h"

namespace outboard::shard {
namespace {

// Nodes that are looked at for one result: an optimizer's step has some tens.
constexpr size_t kUpdateNodesMax = 128;

bool SameType(const UOp* a, const UOp* b) { return a->dtype == b->dtype && a->shape == b->shape; }

// The PARAMs of its own type that `result` is computed from element by element, the nearest first.
std::vector<const UOp*> UpdatedBy(const UOp* result) {
  std::vector<const UOp*> found, next = {result};
  absl::flat_hash_set<const UOp*> seen = {result};
  for (size_t i = 0; i < next.size(); ++i) {
    const UOp* const node = next[i];
    if (node->op == Op::kParam && SameType(node, result)) found.push_back(node);
    if (FlowOf(node->op) != DimFlow::kElementwise) continue;
    for (int s = 0; s < node->own_sources() && next.size() < kUpdateNodesMax; ++s)
      if (node->src[s]->shape == result->shape && seen.insert(node->src[s]).second)
        next.push_back(node->src[s]);
  }
  return found;
}

// Sets what is `free`, state that a result may replace and none does yet: in order, by type and
// shape.
void ReplaceInOrder(const UOp* sink, const std::vector<bool>& free, StepState& state) {
  std::map<std::vector<int64_t>, std::vector<int>> left;  // by type and shape, the last first
  const auto key_of = [](const UOp* value) {
    std::vector<int64_t> key = StaticDims(value->shape);
    key.push_back(static_cast<int64_t>(value->dtype));
    return key;
  };
  for (int slot = static_cast<int>(state.params.size()) - 1; slot >= 0; --slot)
    if (free[slot] && IsStatic(state.params[slot]->shape))
      left[key_of(state.params[slot])].push_back(slot);
  for (size_t i = 0; i < sink->src.size(); ++i) {
    if (state.replaced[i] != StepState::kNothing || !IsStatic(sink->src[i]->shape)) continue;
    const auto at = left.find(key_of(sink->src[i]));
    if (at == left.end() || at->second.empty()) continue;
    state.replaced[i] = at->second.back();
    at->second.pop_back();
  }
}

}  // namespace

std::vector<Layout> StepState::LayoutsAfter(absl::Span<const Layout> params,
                                            absl::Span<const Layout> results) const {
  std::vector<Layout> after(params.begin(), params.end());
  after.resize(this->params.size());
  for (size_t i = 0; i < replaced.size(); ++i)
    if (replaced[i] != kNothing) after[replaced[i]] = i < results.size() ? results[i] : Layout{};
  return after;
}

StepState StateOf(const UOp* sink, const ShardOptions& options) {
  StepState state{.params = ParamsOf(sink), .is_state = options.state};
  for (size_t slot = state.is_state.size(); slot < state.params.size(); ++slot)
    state.is_state.push_back(std::any_of(sink->src.begin(), sink->src.end(), [&](const UOp* r) {
      return SameType(r, state.params[slot]);
    }));
  state.is_donated = options.donated;
  for (size_t slot = state.is_donated.size(); slot < state.params.size(); ++slot)
    state.is_donated.push_back(state.is_state[slot]);
  state.replaced.assign(sink->src.size(), StepState::kNothing);
  std::vector<bool> free(state.params.size());  // what may be replaced and is not yet
  for (size_t slot = 0; slot < free.size(); ++slot)
    free[slot] = state.is_state[slot] && state.is_donated[slot];
  for (size_t i = 0; i < std::min(options.carried_to.size(), sink->src.size()); ++i) {
    const int slot = options.carried_to[i];
    if (slot < 0 || static_cast<size_t>(slot) >= free.size()) continue;
    if (!SameType(sink->src[i], state.params[slot])) continue;  // the Run fails, and says so
    state.replaced[i] = slot;
    free[slot] = false;
  }
  if (std::find(free.begin(), free.end(), true) == free.end()) return state;
  std::vector<std::vector<const UOp*>> updated;  // by result
  for (const UOp* result : sink->src)
    updated.push_back(IsStatic(result->shape) ? UpdatedBy(result) : std::vector<const UOp*>());
  // Those that can replace the fewest first: a moment, which is computed from itself alone, before
  // the weights, which are computed from themselves and their moments.
  std::vector<size_t> order(sink->src.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return updated[a].size() < updated[b].size(); });
  for (const size_t i : order) {
    if (state.replaced[i] != StepState::kNothing) continue;
    for (const UOp* param : updated[i]) {
      const auto slot = static_cast<size_t>(ParamOf(param).slot());
      if (!free[slot]) continue;
      free[slot] = false;
      state.replaced[i] = static_cast<int>(slot);
      break;
    }
  }
  ReplaceInOrder(sink, free, state);
  return state;
}

}  // namespace outboard::shard
