// Lowers a kernel to loops: tasks of a plan, or blocks of threads.
#include <algorithm>
#include <bit>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/kernel/affine.h"
#include "compiler/optimize/rows_in_place.h"
#include "compiler/program/lower/lowering.h"

namespace outboard::program {

Lowering::Lowering(const LoopNest& kernel, const LoopPlan* plan)
    : PointLowering(kernel),
      plan_(plan),
      in_registers_(kernel.ranges.size(), 0),
      in_steps_(kernel.ranges.size(), false),
      done_(kernel.groups.size(), false) {}

Program Lowering::RunPlan() {
  for (const ReduceGroup& group : kernel_.groups)
    level_.push_back(kernel_.IsNested(group) && (group.deps & ~kernel_.OutputSet())
                         ? SIZE_MAX
                         : plan_->LevelOfGroup(group));
  for (const auto& phase : plan_->online.phases)
    for (const size_t g : phase) level_[g] = SIZE_MAX;
  // What comes before the number of the task depends on none: it is computed once a call.
  if (plan_->blocks) OpenBlock();
  OpenTiles();
  OpenCopies();
  GroupsAt(0);
  ValueId task = b_.Special(Grid::kBlock, plan_->tasks() * plan_->cluster);
  if (plan_->cluster > 1) task = b_.Divide(task, plan_->cluster);
  if (plan_->task_loops == 0) {
    StagesAt(0);
    Outputs(0);
    EndStagesAt(0);
  } else {
    std::vector<ValueId> steps(plan_->task_loops);
    ValueId left = task;
    for (int i = plan_->task_loops - 1; i > 0; --i) {
      const int64_t count = plan_->trips(plan_->loops[i]);
      steps[i] = b_.Modulo(left, count);
      left = b_.Divide(left, count);
    }
    steps[0] = plan_->trips(plan_->loops[0]) == 1 ? b_.Int(0) : left;
    TaskLoops(0, steps);
  }
  // Others may still read what this block has left for them.
  if (left_ >= 0) b_.Do(Code::kClusterSync);
  return Take();
}

Program Lowering::RunThreads(const ThreadMapping& mapping) {
  threads_ = mapping.threads;
  columns_ = mapping.columns;
  const int split = mapping.block_ranges;
  RangeSet of_blocks = 0;
  std::vector<int> outer, inner;
  for (int r = 0; r < kernel_.parallel_count; ++r) {
    (r < split ? outer : inner).push_back(r);
    MarkDivided(RangeSet{1} << r);
    if (r < split) of_blocks |= RangeSet{1} << r;
  }
  const int64_t points = Points(inner) / columns_;
  const int64_t chunks = mapping.stride ? 1 : (points + threads_ - 1) / threads_;
  const int64_t blocks = Points(outer) * chunks;
  const ValueId block = blocks > 1 ? b_.Special(Grid::kBlock, blocks) : b_.Int(0);
  thread_ = threads_ > 1 ? b_.Special(Grid::kThread, threads_) : b_.Int(0);
  const auto together = [&](const ReduceGroup& group) {
    return mapping.together && threads_ > 1 && !kernel_.IsNested(group) &&
           (group.deps & ~of_blocks) == 0;
  };
  shared_.resize(kernel_.groups.size());
  for (size_t g = 0; g < kernel_.groups.size(); ++g)
    if (together(kernel_.groups[g]))
      for (const UOp* node : kernel_.groups[g].nodes)
        shared_[g].push_back(b_.Alloc(Space::kShared, SumType(node->dtype), threads_));

  ranges_.OpenAll(outer, b_.Divide(block, chunks));
  std::vector<ValueId> conditions = IfsBelowEnds(outer);
  for (size_t g = 0; g < kernel_.groups.size(); ++g) {
    const ReduceGroup& group = kernel_.groups[g];
    if (!ranges_.AreOpen(group.deps)) continue;
    done_[g] = true;
    together(group) ? GroupTogether(static_cast<int>(g)) : Group(static_cast<int>(g));
  }
  const ValueId chunk = b_.Modulo(block, chunks);
  ValueId loop = -1, index = -1;
  OpenScope();
  if (mapping.stride) {
    const int64_t steps = (points + threads_ - 1) / threads_;
    if (steps > 1) loop = b_.Loop(steps);
    index = b_.Plus(steps > 1 ? b_.Times(loop, threads_) : b_.Int(0), thread_);
  } else {
    index = b_.Plus(b_.Times(chunk, threads_), thread_);
  }
  ValueId inside = points % threads_ == 0 ? -1 : b_.Less(index, b_.Int(points));
  const ValueId branch = inside < 0 ? -1 : b_.If(inside);
  ranges_.OpenAll(inner, index, columns_);
  const std::vector<ValueId> more = IfsBelowEnds(inner);
  Sequences(kernel_.parallel_count);
  for (size_t i = more.size(); i-- > 0;) b_.EndIf(more[i]);
  if (branch >= 0) b_.EndIf(branch);
  if (loop >= 0) b_.End(loop);
  CloseScope();
  for (size_t i = conditions.size(); i-- > 0;) b_.EndIf(conditions[i]);
  return Take();
}

std::vector<ValueId> Lowering::IfsBelowEnds(const std::vector<int>& ranges) {
  std::vector<ValueId> branches;
  for (const int r : ranges)
    if (const UOp* const end = kernel_.ranges[r].end())
      branches.push_back(b_.If(b_.Less(ranges_[r].value, Emit(end))));
  return branches;
}

absl::StatusOr<Program> LowerPlan(const LoopNest& kernel, const LoopPlan& plan) {
  if (kernel.empty) return Program{{}, static_cast<int>(kernel.slot_elements.size())};
  return Lowering(kernel, &plan).RunPlan();
}

absl::StatusOr<Program> LowerThreads(const LoopNest& kernel, const ThreadMapping& mapping) {
  if (kernel.empty) return Program{{}, static_cast<int>(kernel.slot_elements.size())};
  if (mapping.threads < 1 || !std::has_single_bit(static_cast<uint64_t>(mapping.threads)) ||
      mapping.block_ranges < 0 || mapping.block_ranges > kernel.parallel_count)
    return absl::InvalidArgumentError("program: no such mapping to threads");
  if (mapping.columns != 1 &&
      (mapping.columns < 1 || kernel.parallel_count == 0 ||
       kernel.output_count == kernel.parallel_count || mapping.block_ranges > 0 ||
       kernel.ranges[kernel.parallel_count - 1].extent % mapping.columns != 0))
    return absl::InvalidArgumentError("program: a thread has no such columns");
  // A block has read all of a row before it stores over it.
  if (const auto rows = codegen::RowsInPlace(kernel); rows && mapping.threads > 1)
    if (!mapping.together || !mapping.stride ||
        mapping.block_ranges != static_cast<int>(std::bit_width(*rows)))
      return absl::InvalidArgumentError("program: a row that is stored over is one block's");
  return Lowering(kernel, nullptr).RunThreads(mapping);
}

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

}  // namespace outboard::program
