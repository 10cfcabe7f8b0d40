#include "compiler/kernel/loop_nest.h"

#include <algorithm>
#include <bit>
#include <map>
#include <set>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/ir/accessors.h"
#include "compiler/ir/spec.h"
#include "compiler/kernel/decompose_math.h"
#include "compiler/kernel/merge_ranges.h"
#include "compiler/kernel/row_sums.h"
#include "compiler/kernel/split_ranges.h"
#include "compiler/optimize/limits.h"

namespace outboard::codegen {
namespace {

absl::Status Broken(const auto&... parts) {
  return absl::InvalidArgumentError(absl::StrCat("kernel: ", parts...));
}

bool IsReduceRange(const UOp* range) { return IsRange(range, RangeKind::kReduce); }

// Numbers the ranges; fails where two have one id, since a loop is known by its id.
absl::Status FindRanges(LoopNest& kernel) {
  std::vector<const UOp*> found;
  for (const UOp* node : kernel.nodes)
    if (node->op == Op::kRange) found.push_back(node);
  if (static_cast<int64_t>(found.size()) > limits::kKernelRangesMax)
    return absl::ResourceExhaustedError(absl::StrCat(
        "kernel: ", found.size(), " loops are over the limit of ", limits::kKernelRangesMax));
  std::sort(found.begin(), found.end(), [](const UOp* a, const UOp* b) {
    return std::make_pair(IsReduceRange(a), RangeOf(a).id()) <
           std::make_pair(IsReduceRange(b), RangeOf(b).id());
  });
  for (size_t i = 0; i < found.size(); ++i) {
    if (i > 0 && RangeOf(found[i]).id() == RangeOf(found[i - 1]).id() &&
        IsReduceRange(found[i]) == IsReduceRange(found[i - 1]))
      return Broken("two ranges have the id ", RangeOf(found[i]).id());
    const bool sequence = IsRange(found[i], RangeKind::kSequence);
    if (!sequence && !IsReduceRange(found[i]) && kernel.parallel_count < kernel.output_count)
      return Broken("an output range is inside of a sequence");
    kernel.ranges.push_back(
        {found[i], RangeOf(found[i]).extent(), IsReduceRange(found[i]), sequence});
    if (!IsReduceRange(found[i])) {
      ++kernel.output_count;
      kernel.parallel_count += !sequence;
      kernel.empty = kernel.empty || RangeOf(found[i]).extent() == 0;
    }
  }
  return absl::OkStatus();
}

RangeSet SetOf(const std::vector<int>& ranges) {
  RangeSet set = 0;
  for (const int r : ranges) set |= RangeSet{1} << r;
  return set;
}

absl::Status FindDepsAndGroups(LoopNest& kernel) {
  absl::flat_hash_map<const UOp*, int> index, level;  // level: reductions below, at most
  for (size_t i = 0; i < kernel.ranges.size(); ++i)
    index[kernel.ranges[i].node] = static_cast<int>(i);
  const RangeSet outputs = kernel.OutputSet();
  // What one step of a sequence stores another one may load, wherever that is.
  RangeSet sequences = 0;
  for (size_t i = 0; i < kernel.ranges.size(); ++i)
    if (kernel.ranges[i].sequence) sequences |= RangeSet{1} << i;
  absl::flat_hash_set<const UOp*> stored;
  for (const UOp* store : kernel.stores) stored.insert(store->src[0]->src[0]);
  // Ordered by level, then by loops and dependence; the order of nodes inside is the graph's.
  std::map<std::tuple<int, std::vector<int>, RangeSet>, std::vector<const UOp*>> groups;
  for (const UOp* node : kernel.nodes) {
    RangeSet deps = 0;
    int below = 0;
    if (node->op == Op::kRange) deps = RangeSet{1} << index.at(node);
    const size_t sources = node->op == Op::kReduceLoop ? 1 : node->src.size();
    for (size_t i = 0; i < sources; ++i) {
      deps |= kernel.deps.at(node->src[i]);
      below = std::max(below, level.at(node->src[i]));
    }
    if (node->op == Op::kLoad && stored.contains(node->src[0]->src[0])) deps |= sequences;
    if (node->op == Op::kReduceLoop) {
      std::vector<int> ranges;
      for (size_t i = 1; i < node->src.size(); ++i) ranges.push_back(index.at(node->src[i]));
      if (static_cast<size_t>(std::popcount(SetOf(ranges))) != ranges.size())
        return Broken("a REDUCE_LOOP names a range twice");
      deps &= ~SetOf(ranges);
      ++below;
      groups[{below, ranges, deps}].push_back(node);
    }
    if (node->op == Op::kStore && (deps & ~outputs))
      return Broken("a STORE depends on a range of a reduction");
    kernel.deps[node] = deps;
    level[node] = below;
  }
  for (auto& [key, nodes] : groups)
    kernel.groups.push_back({std::get<1>(key), std::move(nodes), std::get<2>(key)});
  return absl::OkStatus();
}

absl::Status FindSlots(LoopNest& kernel) {
  for (const UOp* node : kernel.nodes) {
    if (node->op != Op::kGlobal) continue;
    const int64_t slot = GlobalOf(node).slot();
    if (slot >= limits::kKernelSlotsMax)
      return absl::ResourceExhaustedError(
          absl::StrCat("kernel: slot ", slot, " is over the limit of ", limits::kKernelSlotsMax));
    if (slot >= static_cast<int64_t>(kernel.slot_elements.size())) {
      kernel.slot_elements.resize(slot + 1, -1);
      kernel.slot_dtypes.resize(slot + 1, DType::kVoid);
    }
    if (kernel.slot_elements[slot] >= 0) return Broken("slot ", slot, " is declared in two ways");
    kernel.slot_elements[slot] = GlobalOf(node).elements();
    kernel.slot_dtypes[slot] = node->dtype;
    kernel.bytes += GlobalOf(node).elements() * ByteWidth(node->dtype);
  }
  return absl::OkStatus();
}

// How often a node is computed, at least: once for each point of the loops that it depends on.
// Rows that are added in sequence may be looked at by several parts of the places, each of which
// adds its own (schedule/gather/scatter.h): no place depends on the part, and each row counts once.
void CountFlops(LoopNest& kernel) {
  RangeSet in_places = ~kernel.OutputSet();
  for (const UOp* store : kernel.stores) in_places |= kernel.deps.at(store->src[0]);
  RangeSet parts = 0;
  for (int i = kernel.parallel_count; i < kernel.output_count; ++i) in_places |= RangeSet{1} << i;
  if (kernel.parallel_count < kernel.output_count) parts = ~in_places;
  double flops = 0;
  for (const UOp* node : kernel.nodes) {
    if (!IsFloat(node->dtype) || !(IsAlu(node->op) || node->op == Op::kReduceLoop) ||
        node->op == Op::kWhere)
      continue;
    RangeSet set = kernel.deps.at(node);
    if (node->op == Op::kReduceLoop)
      for (size_t i = 1; i < node->src.size(); ++i) set |= kernel.deps.at(node->src[i]);
    set &= ~parts;
    double points = node->op == Op::kMulAcc ? 2 : 1;
    for (size_t i = 0; i < kernel.ranges.size(); ++i)
      if (set >> i & 1) points *= static_cast<double>(kernel.ranges[i].extent);
    flops += points;
  }
  kernel.flops = flops < 9e18 ? static_cast<int64_t>(flops) : INT64_MAX;
}

absl::Status CheckSize(const std::vector<const UOp*>& nodes) {
  if (static_cast<int64_t>(nodes.size()) <= limits::kKernelNodesMax) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      "kernel: ", nodes.size(), " nodes are over the limit of ", limits::kKernelNodesMax));
}

// Of the ranges as they are written, which MergeRanges compares by pairs.
absl::Status CheckWrittenRanges(const std::vector<const UOp*>& nodes) {
  const int64_t count = std::count_if(nodes.begin(), nodes.end(),
                                      [](const UOp* node) { return node->op == Op::kRange; });
  if (count <= limits::kWrittenRangesMax) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("kernel: ", count,
                                                   " loops, before any are merged, are over the "
                                                   "limit of ",
                                                   limits::kWrittenRangesMax));
}

}  // namespace

int LoopNest::IndexOf(const UOp* range) const {
  for (size_t i = 0; i < ranges.size(); ++i)
    if (ranges[i].node == range) return static_cast<int>(i);
  OB_CHECK(false && "a range of another kernel");
  return -1;
}

bool LoopNest::IsNested(const ReduceGroup& group) const {
  if (group.deps & ~OutputSet()) return true;
  const RangeSet own = SetOf(group.ranges);
  return std::any_of(groups.begin(), groups.end(),
                     [&](const ReduceGroup& other) { return other.deps & own; });
}

absl::StatusOr<LoopNest> AnalyzeKernel(const UOp* sink) {
  LoopNest kernel;
  OB_RETURN_IF_ERROR(CheckWrittenSize(sink));
  OB_RETURN_IF_ERROR(CheckRowSums(sink));
  kernel.graph = std::make_unique<Graph>();
  kernel.tf32 = AllowsTf32(sink);
  sink = MergeRanges(*kernel.graph, SplitRanges(*kernel.graph, sink));
  sink = DecomposeTranscendentals(*kernel.graph, sink);
  kernel.nodes = PostOrder(sink);
  OB_RETURN_IF_ERROR(CheckSize(kernel.nodes));
  kernel.stores.assign(sink->src.begin(), sink->src.end());
  OB_RETURN_IF_ERROR(FindRanges(kernel));
  OB_RETURN_IF_ERROR(FindDepsAndGroups(kernel));
  OB_RETURN_IF_ERROR(FindSlots(kernel));
  kernel.vars = VarsOf(sink);
  CountFlops(kernel);
  return kernel;
}

absl::Status CheckWrittenSize(const UOp* sink) {
  const std::vector<const UOp*> nodes = PostOrder(sink);
  OB_RETURN_IF_ERROR(CheckSize(nodes));
  return CheckWrittenRanges(nodes);
}

}  // namespace outboard::codegen
