// Kernels without a plan: blocks of threads, each of which runs plain loops. A thread has one point
// of the parallel ranges, or a few along the last one.
//
// Sequences are loops whose steps a thread takes one after the other, as each may read what an
// earlier one stored. Where a gate says which steps a thread has anything to do in (a scatter's
// rows, each of which belongs to the threads of one part of the places), it is computed for many
// steps at once, so that what it reads is loaded together; and a branch skips steps of which none
// is to be taken.
#include <algorithm>
#include <bit>

#include "compiler/optimize/rows_in_place.h"
#include "compiler/program/lower/lowering.h"
#include "compiler/rewrite/conjuncts.h"

namespace outboard::program {
namespace {

// Steps behind one branch: all that they load may be in flight at once. And so many whose gates are
// computed before the first branch: two cache lines of indices of 32 bits.
constexpr int64_t kStepsTogether = 16;
constexpr int64_t kStepsAhead = 64;
// Of the steps behind one branch, and of those between two of the loop, all of which are written
// out. A step of more nodes than the first has a plain loop.
constexpr int64_t kNodesWrittenOut = 512, kNodesAhead = 8192;

}  // namespace

class PlainLowering : public Lowering {
 public:
  PlainLowering(const LoopNest& kernel, const ThreadMapping& mapping)
      : Lowering(kernel, nullptr),
        mapping_(mapping),
        threads_(mapping.threads),
        done_(kernel.groups.size(), false) {}

  Program Run();

 private:
  // Opens branches around the code that follows, for ranges that end before their extent.
  std::vector<ValueId> IfsBelowEnds(const std::vector<int>& ranges);
  int64_t Points(const std::vector<int>& ranges) const {
    int64_t points = 1;
    for (const int r : ranges) points *= kernel_.ranges[r].extent;
    return points;
  }
  // Computes a reduction by all threads of the block: each sums every threads_-th term, then a tree
  // adds the sums by halves.
  void GroupTogether(int index);

  // Recursion depth: the number of sequences.
  void Sequences(int range);
  std::vector<const UOp*> GateOfSteps(int range) const;
  void Step(int range, ValueId step);
  void StepsAhead(int range, const std::vector<const UOp*>& gate, int64_t first, int64_t times,
                  int64_t ahead, int64_t together);
  void StepsTogether(int range, const std::function<ValueId(int64_t)>& step, int64_t count);
  void OverColumns(const std::function<void()>& body);

  const ThreadMapping mapping_;
  const int64_t threads_;  // of a block
  ValueId thread_ = -1;
  std::vector<std::vector<ValueId>> together_;  // memory of the block, by group and node
  std::vector<bool> done_;                      // groups already computed
};

Program PlainLowering::Run() {
  const int split = mapping_.block_ranges;
  RangeSet of_blocks = 0;
  std::vector<int> outer, inner;
  for (int r = 0; r < kernel_.parallel_count; ++r) {
    (r < split ? outer : inner).push_back(r);
    MarkDivided(RangeSet{1} << r);
    if (r < split) of_blocks |= RangeSet{1} << r;
  }
  const int64_t points = Points(inner) / mapping_.columns;
  const int64_t chunks = mapping_.stride ? 1 : (points + threads_ - 1) / threads_;
  const int64_t blocks = Points(outer) * chunks;
  const ValueId block = blocks > 1 ? b_.Special(Grid::kBlock, blocks) : b_.Int(0);
  thread_ = threads_ > 1 ? b_.Special(Grid::kThread, threads_) : b_.Int(0);
  const auto together = [&](const ReduceGroup& group) {
    return mapping_.together && threads_ > 1 && !kernel_.IsNested(group) &&
           (group.deps & ~of_blocks) == 0;
  };
  together_.resize(kernel_.groups.size());
  for (size_t g = 0; g < kernel_.groups.size(); ++g)
    if (together(kernel_.groups[g]))
      for (const UOp* node : kernel_.groups[g].nodes)
        together_[g].push_back(b_.Alloc(Space::kShared, SumType(node->dtype), threads_));

  ranges_.OpenAll(outer, b_.Divide(block, chunks));
  std::vector<ValueId> conditions = IfsBelowEnds(outer);
  for (size_t g = 0; g < kernel_.groups.size(); ++g) {
    const ReduceGroup& group = kernel_.groups[g];
    if (!ranges_.AreOpen(group.deps)) continue;
    done_[g] = true;
    together(group) ? GroupTogether(static_cast<int>(g)) : Reduce(static_cast<int>(g));
  }
  const ValueId chunk = b_.Modulo(block, chunks);
  ValueId loop = -1, index = -1;
  OpenScope();
  if (mapping_.stride) {
    const int64_t steps = (points + threads_ - 1) / threads_;
    if (steps > 1) loop = b_.Loop(steps);
    index = b_.Plus(steps > 1 ? b_.Times(loop, threads_) : b_.Int(0), thread_);
  } else {
    index = b_.Plus(b_.Times(chunk, threads_), thread_);
  }
  ValueId inside = points % threads_ == 0 ? -1 : b_.Less(index, b_.Int(points));
  const ValueId branch = inside < 0 ? -1 : b_.If(inside);
  ranges_.OpenAll(inner, index, mapping_.columns);
  const std::vector<ValueId> more = IfsBelowEnds(inner);
  Sequences(kernel_.parallel_count);
  for (size_t i = more.size(); i-- > 0;) b_.EndIf(more[i]);
  if (branch >= 0) b_.EndIf(branch);
  if (loop >= 0) b_.End(loop);
  CloseScope();
  for (size_t i = conditions.size(); i-- > 0;) b_.EndIf(conditions[i]);
  return Take();
}

std::vector<ValueId> PlainLowering::IfsBelowEnds(const std::vector<int>& ranges) {
  std::vector<ValueId> branches;
  for (const int r : ranges)
    if (const UOp* const end = kernel_.ranges[r].end())
      branches.push_back(b_.If(b_.Less(ranges_[r].value, Emit(end))));
  return branches;
}

void PlainLowering::GroupTogether(int index) {
  const ReduceGroup& group = kernel_.groups[index];
  std::vector<ValueId> sums;
  for (const UOp* node : group.nodes) {
    const DType type = SumType(node->dtype);
    sums.push_back(b_.Alloc(Space::kPrivate, type, 1));
    b_.Store(sums.back(), b_.Int(0), Identity(ReduceOf(node).op(), type));
  }
  const int64_t terms = Points(group.ranges);
  RangeSet own = 0;
  for (const int r : group.ranges) own |= RangeSet{1} << r;
  if (terms > 0) {
    OpenScope();
    const ValueId loop = b_.Loop((terms + threads_ - 1) / threads_);
    const ValueId term = b_.Plus(b_.Times(loop, threads_), thread_);
    const ValueId branch = terms % threads_ == 0 ? -1 : b_.If(b_.Less(term, b_.Int(terms)));
    ranges_.OpenAll(group.ranges, term);
    std::vector<const UOp*> roots;
    for (const UOp* node : group.nodes) roots.push_back(node->src[0]);
    GroupsWithin(own, roots);
    for (size_t n = 0; n < group.nodes.size(); ++n)
      Accumulate(ReduceOf(group.nodes[n]).op(), sums[n], b_.Int(0),
                 b_.Cast(Emit(group.nodes[n]->src[0]), b_.at(sums[n]).dtype));
    ranges_.CloseAll(group.ranges);
    if (branch >= 0) b_.EndIf(branch);
    b_.End(loop);
    CloseScope();
  }
  for (size_t n = 0; n < group.nodes.size(); ++n)
    b_.Store(together_[index][n], thread_, b_.Load(sums[n], b_.Int(0)));
  b_.Barrier();
  for (int64_t half = threads_ / 2; half > 0; half /= 2) {
    const ValueId branch = b_.If(b_.Less(thread_, b_.Int(half)));
    for (size_t n = 0; n < group.nodes.size(); ++n)
      Accumulate(ReduceOf(group.nodes[n]).op(), together_[index][n], thread_,
                 b_.Load(together_[index][n], b_.Plus(thread_, b_.Int(half))));
    b_.EndIf(branch);
    b_.Barrier();
  }
  for (size_t n = 0; n < group.nodes.size(); ++n)
    Provide(group.nodes[n],
            b_.Cast(b_.Load(together_[index][n], b_.Int(0)), group.nodes[n]->dtype));
}

// ---- sequences

// The part of the store's gate that chooses among threads: where steps are divided among them, most
// are another thread's. Nothing if a gate reads what the kernel stores.
std::vector<const UOp*> PlainLowering::GateOfSteps(int range) const {
  if (kernel_.stores.size() != 1 || kernel_.stores[0]->src.size() < 3) return {};
  RangeSet parallel = 0;
  for (int r = 0; r < kernel_.parallel_count; ++r) parallel |= RangeSet{1} << r;
  std::vector<const UOp*> gate;
  for (const UOp* condition : ConjunctsOf(kernel_.stores[0]->src[2])) {
    const RangeSet deps = kernel_.DepsOf(condition);
    if ((deps & parallel) == 0 || (deps >> range & 1) == 0) continue;
    for (const UOp* node : PostOrder(condition)) {
      if (node->op == Op::kReduceLoop) return {};
      if (node->op == Op::kLoad && !b_.IsReadOnly(BufferOf(node))) return {};
    }
    gate.push_back(condition);
  }
  return gate;
}

void PlainLowering::Step(int range, ValueId step) {
  OpenScope();
  ranges_.Open(range, step);
  Sequences(range + 1);
  ranges_.Close(range);
  CloseScope();
}

// So many times `ahead` steps from `first` on.
void PlainLowering::StepsAhead(int range, const std::vector<const UOp*>& gate, int64_t first,
                          int64_t times, int64_t ahead, int64_t together) {
  if (times == 0) return;
  OpenScope();
  const ValueId loop = b_.Loop(times);
  const auto step = [&](int64_t s) {
    return b_.Plus(b_.Times(loop, ahead), b_.Int(first + s));
  };
  const auto at = [&](int64_t s, const std::function<void()>& body) {
    OpenScope();
    ranges_.Open(range, step(s));
    body();
    ranges_.Close(range);
    CloseScope();
  };
  for (int64_t s = 0; s < ahead; ++s)
    at(s, [&] {
      for (const UOp* condition : gate)
        for (const UOp* node : PostOrder(condition))
          if (node->op == Op::kLoad) Emit(node);
    });
  for (int64_t s = 0; s < ahead; s += together) {
    // Not before the branches before this one: there are few registers for conditions.
    ValueId any = -1;
    for (int64_t t = 0; t < together; ++t)
      at(s + t, [&] {
        const ValueId here = Gate(gate);
        any = any < 0 ? here : b_.Alu(Op::kOr, DType::kBool, {any, here});
      });
    const ValueId branch = b_.IfRarely(any);
    if (together == 1) {
      Step(range, step(s));
    } else {
      StepsTogether(range, [&](int64_t t) { return step(s + t); }, together);
    }
    b_.EndIf(branch);
  }
  b_.End(loop);
  CloseScope();
}

// What the steps load but for their sums is loaded before the first addition.
void PlainLowering::StepsTogether(int range, const std::function<ValueId(int64_t)>& step,
                             int64_t count) {
  const UOp* const store = kernel_.stores[0];
  const std::vector<const UOp*> gate = ConjunctsOf(store->src[2]);
  std::vector<const UOp*> loads;
  for (const UOp* node : PostOrder(store->src[1]))
    if (node->op == Op::kLoad && b_.IsReadOnly(BufferOf(node)))
      loads.push_back(node);
  // What a gate reads is read for all steps; what else they load, where they are taken.
  const auto at = [&](int64_t t, const std::function<void(ValueId)>& body) {
    OpenScope();
    ranges_.Open(range, step(t));
    const ValueId taken = Gate(gate);
    LoadOnlyIf(taken);
    body(taken);
    LoadOnlyIf(-1);
    ranges_.Close(range);
    CloseScope();
  };
  for (int64_t t = 0; t < count; ++t)
    at(t, [&](ValueId) {
      OverColumns([&] {
        for (const UOp* load : loads) Emit(load);
      });
    });
  for (int64_t t = 0; t < count; ++t)
    at(t, [&](ValueId taken) {
      const ValueId branch = b_.IfRarely(taken);
      Sequences(range + 1);
      b_.EndIf(branch);
    });
}

void PlainLowering::Sequences(int range) {
  for (size_t g = 0; g < kernel_.groups.size(); ++g)
    if (!done_[g] && ranges_.AreOpen(kernel_.groups[g].deps)) {
      done_[g] = true;
      Reduce(static_cast<int>(g));
    }
  if (range == kernel_.output_count) {
    OverColumns([&] { Stores(); });
    return;
  }
  const UOp* const end = kernel_.ranges[range].end();
  const int64_t extent = kernel_.ranges[range].extent;
  int64_t done = 0;
  const bool innermost = range + 1 == kernel_.output_count && kernel_.groups.empty();
  const auto nodes =
      innermost ? static_cast<int64_t>(PostOrder(kernel_.stores[0]).size()) : int64_t{0};
  if (const auto gate = innermost && end == nullptr ? GateOfSteps(range)
                                                    : std::vector<const UOp*>();
      !gate.empty() && nodes <= kNodesWrittenOut) {
    const int64_t together =
        std::clamp<int64_t>(static_cast<int64_t>(std::bit_floor(
                                static_cast<uint64_t>(kNodesWrittenOut / nodes + 1))),
                            1, kStepsTogether);
    const int64_t most = std::clamp<int64_t>(
        static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(kNodesAhead / nodes + 1))),
        together, kStepsAhead);
    for (const int64_t ahead : {most, together, int64_t{1}}) {
      StepsAhead(range, gate, done, (extent - done) / ahead, ahead, std::min(ahead, together));
      done += (extent - done) / ahead * ahead;
    }
  }
  if (done == extent) return;
  OpenScope();
  const ValueId loop =
      b_.Loop(extent - done, How::kPlain, 1, end == nullptr ? -1 : Emit(end));
  Step(range, b_.Plus(loop, b_.Int(done)));
  b_.End(loop);
  CloseScope();
}

// At the thread's points of the last parallel range, which are lanes of one vector.
void PlainLowering::OverColumns(const std::function<void()>& body) {
  if (mapping_.columns == 1) return body();
  const int r = kernel_.parallel_count - 1;
  const auto columns = static_cast<int>(mapping_.columns);
  OpenScope();
  const ValueId lane = ranges_.OpenLanes(r, columns, columns);
  const ValueId first = ranges_[r].value;
  ranges_[r].value = b_.Plus(first, lane);
  body();
  ranges_[r].value = first;
  ranges_.CloseLanes();
  CloseScope();
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
  return PlainLowering(kernel, mapping).Run();
}

}  // namespace outboard::program
