#include "compiler/optimize/loop_order.h"

#include <utility>

namespace outboard::codegen {

void AddSwaps(std::vector<Loop> loops, const std::vector<Loop>& wanted, std::vector<Opt>& opts) {
  for (size_t i = 0; i < wanted.size(); ++i) {
    size_t at = i;
    while (loops[at].range != wanted[i].range || loops[at].block != wanted[i].block) ++at;
    for (; at > i; --at) {
      opts.push_back({OptKind::kSwap, static_cast<int64_t>(at) - 1, static_cast<int64_t>(at)});
      std::swap(loops[at - 1], loops[at]);
    }
  }
}

int64_t AddLoopsAroundCopies(const LoopNest& kernel, RangeSet copied,
                             const std::vector<Loop>& blocks, int last, std::vector<Opt>& opts) {
  const auto is_copied = [&](int range) { return (copied >> range & 1) != 0; };
  // The loops as they come, and as they are wanted.
  std::vector<Loop> loops, wanted;
  for (const Loop& block : blocks) {
    if (block.block >= kernel.ranges[block.range].extent) continue;
    opts.push_back({OptKind::kBlock, block.range, block.block});
    loops.push_back(block);
  }
  const auto block_count = static_cast<int64_t>(loops.size());
  for (int i = 0; i < kernel.output_count; ++i) loops.push_back({i});
  for (int i = 0; i < kernel.output_count; ++i)
    if (i != last && is_copied(i)) wanted.push_back({i});
  wanted.insert(wanted.end(), loops.begin(), loops.begin() + block_count);
  const auto level = static_cast<int64_t>(wanted.size());
  for (int i = 0; i < kernel.output_count; ++i)
    if (i != last && !is_copied(i)) wanted.push_back({i});
  wanted.push_back({last});
  AddSwaps(loops, wanted, opts);
  if (level > 0) opts.push_back({OptKind::kThread, 0, level});
  return level;
}

}  // namespace outboard::codegen
