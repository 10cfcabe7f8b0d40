// Which blocks and threads compute a kernel without a plan.
#include <algorithm>
#include <bit>

#include "compiler/kernel/affine.h"
#include "compiler/kernel/loop_nest.h"
#include "compiler/optimize/rows_in_place.h"
#include "compiler/program/expand.h"

namespace outboard::program {

using codegen::LoopNest;
using codegen::RangeSet;
using codegen::ReduceGroup;

namespace {

// How many consecutive elements of the last parallel range one thread may have, of which every
// access is of consecutive ones, or of one for all: as many as one access of 16 bytes.
int64_t ColumnsOfThread(const LoopNest& kernel) {
  constexpr int64_t kAccessBytes = 16;
  if (kernel.parallel_count == 0) return 1;
  const int last = kernel.parallel_count - 1;
  const UOp* const range = kernel.ranges[last].node;
  int64_t columns = kAccessBytes;
  codegen::AffineForms forms;
  const auto depends = [&](const UOp* node) { return (kernel.DepsOf(node) >> last & 1) != 0; };
  for (const UOp* node : kernel.nodes) {
    if (node->op != Op::kLoad && node->op != Op::kStore) continue;
    const bool stores = node->op == Op::kStore;
    if (node->src.size() == 3 && depends(node->src[stores ? 2 : 1])) return 1;
    const UOp* const index = node->src[0]->src[1];
    if (stores && !depends(index)) return 1;
    if (!depends(index)) continue;
    const codegen::Affine& form = forms.Of(index);
    for (const auto& [term, coefficient] : form.terms)
      if (term == range ? coefficient != 1 : depends(term)) return 1;
    columns = std::min<int64_t>(columns, kAccessBytes / ByteWidth(node->src[0]->src[0]->dtype));
  }
  while (kernel.ranges[last].extent % columns != 0) columns /= 2;
  return kernel.ranges[last].end() == nullptr ? columns : 1;
}

}  // namespace

ThreadMapping MapToThreads(const LoopNest& kernel, int64_t threads_max) {
  // Where so few threads could have a point each, or so long a reduction is to be computed by one,
  // a block computes it together.
  constexpr double kPointsEnough = 2048;
  constexpr double kTermsMany = 64;
  constexpr int64_t kSequenceThreads = 64;
  double points = 1;
  RangeSet parallel = 0;
  for (int r = 0; r < kernel.parallel_count; ++r) {
    points *= static_cast<double>(kernel.ranges[r].extent);
    parallel |= RangeSet{1} << r;
  }
  ThreadMapping mapping;
  double longest = 0;  // of the reductions that fewer threads than points need
  int block_ranges = 0;
  for (const ReduceGroup& group : kernel.groups) {
    if (kernel.IsNested(group) || (group.deps & ~parallel)) continue;
    double terms = 1;
    for (const int r : group.ranges) terms *= static_cast<double>(kernel.ranges[r].extent);
    const bool of_all = (parallel & ~group.deps) == 0;
    if (terms < kTermsMany && of_all) continue;
    if (of_all && points >= kPointsEnough) continue;
    longest = std::max(longest, terms);
    block_ranges = std::max(block_ranges, static_cast<int>(std::bit_width(group.deps)));
  }
  if (longest == 0 && kernel.output_count > kernel.parallel_count) {
    // Each step waits for what the one before stored: threads of few warps, on all multiprocessors.
    mapping.columns = ColumnsOfThread(kernel);
    threads_max = std::min(threads_max, kSequenceThreads);
  }
  double inner = 1;
  for (int r = longest > 0 ? block_ranges : 0; r < kernel.parallel_count; ++r)
    inner *= static_cast<double>(kernel.ranges[r].extent);
  if (longest > 0) {
    mapping.block_ranges = block_ranges;
    mapping.stride = mapping.together = true;
  }
  const double work = std::max(longest, inner / static_cast<double>(mapping.columns));
  mapping.threads = 1;
  while (mapping.threads < threads_max && static_cast<double>(mapping.threads) < work)
    mapping.threads *= 2;
  return mapping;
}

ThreadMapping MapLastRangeToThreads(const LoopNest& kernel, int64_t threads_max) {
  ThreadMapping mapping{.threads = 1};
  // A row that is stored over would have to be read by all of its block before (LowerThreads).
  if (kernel.parallel_count == 0 || codegen::RowsInPlace(kernel)) return mapping;
  mapping.block_ranges = kernel.parallel_count - 1;
  mapping.stride = true;
  while (mapping.threads < threads_max &&
         mapping.threads < kernel.ranges[mapping.block_ranges].extent)
    mapping.threads *= 2;
  return mapping.threads > 1 ? mapping : ThreadMapping{.threads = 1};
}

}  // namespace outboard::program
