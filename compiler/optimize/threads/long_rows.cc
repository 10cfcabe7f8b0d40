#include "compiler/optimize/threads/long_rows.h"

#include <algorithm>
#include <bit>

#include "absl/container/btree_set.h"
#include "compiler/ir/accessors.h"

namespace outboard::codegen {

std::vector<int64_t> SlotsReadAgain(const LoopNest& kernel, const std::vector<Body>& bodies,
                                    int main, int along) {
  const auto extent = [&](int range) { return kernel.ranges[static_cast<size_t>(range)].extent; };
  absl::btree_set<int64_t> slots;
  for (const Access& row : bodies[static_cast<size_t>(main)].accesses) {
    if (row.store || (row.deps >> along & 1) == 0) continue;
    const int64_t slot = GlobalOfAccess(row.index).slot();
    if (slots.contains(slot)) continue;
    const auto has_row = [&](const Access& access) {
      if (access.store || GlobalOfAccess(access.index).slot() != slot) return false;
      for (int r = 0; r < static_cast<int>(kernel.ranges.size()); ++r)
        if ((access.deps >> r & 1) != 0 && extent(r) == extent(along)) return true;
      return false;
    };
    if (std::ranges::count_if(bodies, [&](const Body& body) {
          return std::ranges::any_of(body.accesses, has_row);
        }) > 1)
      slots.insert(slot);
  }
  return {slots.begin(), slots.end()};
}

bool ComparesPlaces(const LoopNest& kernel, int along) {
  const auto extent = [&](int range) { return kernel.ranges[static_cast<size_t>(range)].extent; };
  return std::ranges::any_of(kernel.nodes, [&](const UOp* node) {
    return (node->op == Op::kCmpEq || node->op == Op::kCmpNe || node->op == Op::kCmpLt) &&
           std::ranges::any_of(node->src, [&](const UOp* source) {
             return source->op == Op::kRange && extent(kernel.IndexOf(source)) == extent(along);
           });
  });
}

int64_t OperandsBeside(const LoopNest& kernel, int along) {
  return std::ranges::count_if(kernel.nodes, [&](const UOp* node) {
    const RangeSet deps = node->op == Op::kLoad ? kernel.DepsOf(node) : 0;
    if (std::popcount(deps) != 1 || (deps & kernel.OutputSet()) == 0) return false;
    return kernel.ranges[static_cast<size_t>(std::countr_zero(deps))].extent ==
           kernel.ranges[static_cast<size_t>(along)].extent;
  });
}

}  // namespace outboard::codegen
