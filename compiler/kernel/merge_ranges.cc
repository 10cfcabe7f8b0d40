#include "compiler/kernel/merge_ranges.h"

#include <algorithm>
#include <set>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/check.h"
#include "compiler/ir/accessors.h"
#include "compiler/ir/build.h"
#include "compiler/kernel/affine.h"
#include "compiler/kernel/row_sums.h"

namespace outboard::codegen {
namespace {

// range -> its replacement; a REDUCE_LOOP loses the ranges that become constants.
using Replacements = absl::flat_hash_map<const UOp*, const UOp*>;

// Index sums are rebuilt from their affine form: a replaced range may cancel or join others.
const UOp* Rebuild(Graph& g, const UOp* sink, const Replacements& replacements) {
  absl::flat_hash_map<const UOp*, const UOp*> made;
  for (const UOp* node : PostOrder(sink)) {
    if (const auto it = replacements.find(node); it != replacements.end()) {
      made[node] = it->second;
      continue;
    }
    std::vector<const UOp*> src;
    for (const UOp* source : node->src) {
      const UOp* const now = made.at(source);
      const bool dropped =
          node->op == Op::kReduceLoop && !src.empty() &&
          (now->op != Op::kRange || std::find(src.begin() + 1, src.end(), now) != src.end());
      if (!dropped) src.push_back(now);
    }
    if (node->op == Op::kReduceLoop && src.size() == 1) {
      made[node] = src[0];
    } else if (node->op == Op::kAdd && src[0]->IsIntConst(0)) {
      made[node] = src[1];
    } else if (node->op == Op::kAdd && src[1]->IsIntConst(0)) {
      made[node] = src[0];
    } else if (node->op == Op::kMul && (src[0]->IsIntConst(0) || src[1]->IsIntConst(0))) {
      made[node] = ConstInt(g, node->dtype, 0);
    } else {
      made[node] = g.MakeChecked(node->op, node->dtype, src, node->arg);
    }
  }
  return made.at(sink);
}

// Quotients of a range whose extent the divisor divides, in stores of sums (row_sums.h). They are
// terms of sums as ranges are.
std::set<const UOp*> BlocksIn(const UOp* sink) {
  std::set<const UOp*> blocks;
  for (const UOp* store : sink->src)
    if (store->op == Op::kStore && SumsPoints(store))
      if (const UOp* const block = BlockOfWhole(store); block != nullptr) blocks.insert(block);
  return blocks;
}

// The sums that something other than a sum reads; in these alone ranges are seen from outside.
std::vector<const UOp*> AffineRoots(const UOp* sink, const std::set<const UOp*>& blocks) {
  std::vector<const UOp*> roots;
  std::set<uint32_t> seen;
  for (const UOp* node : PostOrder(sink)) {
    if (IsAffineOp(node) || blocks.contains(node)) continue;
    const size_t count = node->op == Op::kReduceLoop ? 1 : node->src.size();
    for (size_t i = 0; i < count; ++i)
      if (IsAffineOp(node->src[i]) && seen.insert(node->src[i]->index).second)
        roots.push_back(node->src[i]);
  }
  return roots;
}

// May `inner` stand for outer * extent(inner) + inner everywhere?
bool CanMerge(const std::vector<const UOp*>& roots, const std::set<const UOp*>& blocks,
              AffineForms& forms, const UOp* outer, const UOp* inner) {
  if (!inner->src.empty()) return false;  // there would be an end in every turn of the outer one
  for (const UOp* block : blocks)
    if (block->src[0] == outer) return false;
  __int128 extent = static_cast<__int128>(RangeOf(outer).extent()) * RangeOf(inner).extent();
  if (extent >= (__int128{1} << 40)) return false;
  for (const UOp* root : roots) {
    const Affine& form = forms.Of(root);
    const auto inside = static_cast<uint64_t>(RangeOf(inner).extent());
    uint64_t expected = form.CoefficientOf(inner) * inside;
    for (const UOp* block : blocks)
      if (block->src[0] == inner)
        expected += form.CoefficientOf(block) * (inside / static_cast<uint64_t>(kSumRows));
    if (form.CoefficientOf(outer) != expected) return false;
  }
  return true;
}

// The REDUCE_LOOPs a range belongs to; merged ranges must belong to the same.
std::vector<uint32_t> LoopsOf(const UOp* sink, const UOp* range) {
  std::vector<uint32_t> loops;
  for (const UOp* node : PostOrder(sink))
    if (node->op == Op::kReduceLoop &&
        std::find(node->src.begin() + 1, node->src.end(), range) != node->src.end())
      loops.push_back(node->index);
  return loops;
}

std::vector<const UOp*> RangesOf(const UOp* sink) {
  std::vector<const UOp*> ranges;
  for (const UOp* node : PostOrder(sink))
    if (node->op == Op::kRange) ranges.push_back(node);
  std::sort(ranges.begin(), ranges.end(), [](const UOp* a, const UOp* b) {
    return std::make_pair(RangeOf(a).kind(), RangeOf(a).id()) <
           std::make_pair(RangeOf(b).kind(), RangeOf(b).id());
  });
  return ranges;
}

// Merges one pair; the sink itself where there is none.
const UOp* MergeOnce(Graph& g, const UOp* sink) {
  const std::set<const UOp*> blocks = BlocksIn(sink);
  const std::vector<const UOp*> ranges = RangesOf(sink), roots = AffineRoots(sink, blocks);
  AffineForms forms;
  for (const UOp* outer : ranges)
    for (const UOp* inner : ranges) {
      if (outer == inner || RangeOf(outer).kind() != RangeOf(inner).kind() ||
          !CanMerge(roots, blocks, forms, outer, inner))
        continue;
      if (LoopsOf(sink, outer) != LoopsOf(sink, inner)) continue;
      std::vector<const UOp*> end;
      if (!outer->src.empty())
        end.push_back(Mul(g, outer->src[0], ConstIndex(g, RangeOf(inner).extent())));
      const UOp* const merged =
          g.MakeChecked(Op::kRange, DType::kI64, end,
                        {RangeOf(inner).id(), RangeOf(outer).extent() * RangeOf(inner).extent(),
                         static_cast<int64_t>(RangeOf(inner).kind())});
      return Rebuild(g, sink, {{outer, ConstIndex(g, 0)}, {inner, merged}});
    }
  return sink;
}

}  // namespace

const UOp* MergeRanges(Graph& graph, const UOp* sink) {
  Replacements ones;
  for (const UOp* range : RangesOf(sink))
    if (RangeOf(range).extent() == 1) ones[range] = ConstIndex(graph, 0);
  sink = Rebuild(graph, sink, ones);
  while (true) {
    const UOp* const merged = MergeOnce(graph, sink);
    if (merged == sink) return sink;
    sink = merged;
  }
}

}  // namespace outboard::codegen
