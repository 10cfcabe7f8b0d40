// Sequences: loops whose steps a thread takes one after the other, as each may read what an earlier
// one stored.
//
// Where a gate says which steps a thread has anything to do in (a scatter's rows, each of which
// belongs to the threads of one part of the places), it is computed for many steps at once, so that
// what it reads is loaded together; and a branch skips steps of which none is to be taken.
#include <algorithm>
#include <bit>

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

// The part of the store's gate that chooses among threads: where steps are divided among them, most
// are another thread's. Nothing if a gate reads what the kernel stores.
std::vector<const UOp*> Lowering::GateOfSteps(int range) const {
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

void Lowering::Step(int range, ValueId step) {
  OpenScope();
  ranges_.Open(range, step);
  Sequences(range + 1);
  ranges_.Close(range);
  CloseScope();
}

// So many times `ahead` steps from `first` on.
void Lowering::StepsAhead(int range, const std::vector<const UOp*>& gate, int64_t first,
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
void Lowering::StepsTogether(int range, const std::function<ValueId(int64_t)>& step,
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

void Lowering::Sequences(int range) {
  for (size_t g = 0; g < kernel_.groups.size(); ++g)
    if (!done_[g] && ranges_.AreOpen(kernel_.groups[g].deps)) {
      done_[g] = true;
      Group(static_cast<int>(g));
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
void Lowering::OverColumns(const std::function<void()>& body) {
  if (columns_ == 1) return body();
  const int r = kernel_.parallel_count - 1;
  const auto columns = static_cast<int>(columns_);
  OpenScope();
  const ValueId lane = ranges_.OpenLanes(r, columns, columns);
  const ValueId first = ranges_[r].value;
  ranges_[r].value = b_.Plus(first, lane);
  body();
  ranges_[r].value = first;
  ranges_.CloseLanes();
  CloseScope();
}

}  // namespace outboard::program
