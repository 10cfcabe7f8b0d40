#include "compiler/optimize/rows_in_place.h"

#include <algorithm>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "compiler/ir/accessors.h"
#include "compiler/optimize/threads/apply_threads.h"

namespace outboard::codegen {
namespace {

absl::Status Illegal(const auto&... why) {
  return absl::InvalidArgumentError(absl::StrCat("Opts: ", why...));
}

// The stored slots that the kernel also loads.
absl::flat_hash_set<int64_t> SlotsInPlace(const LoopNest& kernel) {
  absl::flat_hash_set<int64_t> stored, both;
  for (const UOp* store : kernel.stores) stored.insert(GlobalOfAccess(store).slot());
  for (const UOp* node : kernel.nodes)
    if (node->op == Op::kLoad && stored.contains(GlobalOfAccess(node).slot()))
      both.insert(GlobalOfAccess(node).slot());
  return both;
}

// The output ranges that a store of one of `slots` depends on.
RangeSet StoreRanges(const LoopNest& kernel, const absl::flat_hash_set<int64_t>& slots) {
  RangeSet deps = 0;
  for (const UOp* store : kernel.stores)
    if (slots.contains(GlobalOfAccess(store).slot())) deps |= kernel.DepsOf(store->src[0]);
  return deps & kernel.OutputSet();
}

// The groups that read rows of `slots`, which the kernel stores element by element.
std::vector<size_t> GroupsOfRows(const LoopNest& kernel,
                                 const absl::flat_hash_set<int64_t>& slots) {
  std::vector<size_t> groups;
  const RangeSet stored = StoreRanges(kernel, slots);
  for (size_t g = 0; g < kernel.groups.size(); ++g)
    if ((stored & ~kernel.groups[g].deps) != 0 && ReadsAnyOf(kernel.groups[g], slots))
      groups.push_back(g);
  return groups;
}

}  // namespace

bool ReadsAnyOf(const ReduceGroup& group, const absl::flat_hash_set<int64_t>& slots) {
  std::vector<const UOp*> bodies;
  for (const UOp* node : group.nodes) bodies.push_back(node->src[0]);
  return std::ranges::any_of(PostOrder(bodies), [&](const UOp* node) {
    return node->op == Op::kLoad && slots.contains(GlobalOfAccess(node).slot());
  });
}

std::optional<RangeSet> RowsInPlace(const LoopNest& kernel) {
  // The steps of a sequence are in order, and read what earlier ones stored.
  if (kernel.output_count > kernel.parallel_count) return std::nullopt;
  const absl::flat_hash_set<int64_t> slots = SlotsInPlace(kernel);
  if (slots.empty()) return std::nullopt;
  const std::vector<size_t> groups = GroupsOfRows(kernel, slots);
  if (groups.empty()) return std::nullopt;
  RangeSet rows = 0;
  for (const size_t g : groups) rows |= kernel.groups[g].deps;
  return rows & kernel.OutputSet();
}

absl::Status CheckRowsInPlace(const LoopNest& kernel, const LoopPlan& plan) {
  const std::optional<RangeSet> rows = RowsInPlace(kernel);
  if (!rows) return absl::OkStatus();
  if (plan.online.range >= 0 || !plan.panels.empty())
    return Illegal("panels of what the kernel stores");
  const absl::flat_hash_set<int64_t> slots = SlotsInPlace(kernel);
  for (const Stage& stage : plan.stages)
    if (slots.contains(GlobalOfAccess(stage.load).slot()))
      return Illegal("a copy of what the kernel stores");
  size_t along = plan.loops.size();  // the first loop along a row
  for (size_t i = 0; i < plan.loops.size(); ++i) {
    const bool of_rows = (*rows >> plan.loops[i].range & 1) != 0;
    if (!of_rows) along = std::min(along, i);
    if (of_rows && i > along) return Illegal("a loop over rows is inside of one along them");
  }
  if (static_cast<size_t>(plan.task_loops) > along)
    return Illegal("a row that is stored over is divided into tasks");
  for (const size_t g : GroupsOfRows(kernel, slots)) {
    const GroupPlan& group = plan.groups[g];
    if (group.core) return Illegal("a matrix unit reads what the kernel stores");
    const int64_t threads = plan.FreeThreads(kernel.groups[g]);
    if (threads == 1) continue;
    if (group.shared_by != threads)
      return Illegal("each of ", threads, " threads would read a row that all of them store");
    if (JoiningOf(kernel, plan, g).warps == 0)
      return Illegal("threads of one warp would not wait for each other");
  }
  return absl::OkStatus();
}

}  // namespace outboard::codegen
