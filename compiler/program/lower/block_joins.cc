// Threads that divide a reduction (SHARE) have a partial result each. Within a warp these are
// joined by halves: each thread adds its partner's, whose number differs in one bit, so that all
// have the same bits in the end. Then the first threads of each warp leave theirs in the block's
// memory, where everybody adds them up, warp by warp; of more than eight warps each thread takes
// one, and all of a warp join them by halves again: a thread that reads all of them needs as many
// registers as hold its part of a long row. Blocks of a cluster (CLUSTER) then leave the
// sums for each other, and everybody adds them up, block by block.
#include <bit>

#include "base/check.h"
#include "compiler/program/lower/block_lowering.h"
#include "compiler/program/lower/lowering.h"

namespace outboard::program {

using codegen::Joining;
using codegen::JoiningOf;

void BlockLowering::JoinResults(int index, const OpenReduction& sums) {
  const Joining joining = JoiningOf(kernel_, plan_, static_cast<size_t>(index));
  std::vector<ValueId> totals;
  for (size_t n = 0; n < sums.group->nodes.size(); ++n) {
    const UOp* const node = sums.group->nodes[n];
    const Op op = ReduceOf(node).op();
    totals.push_back(b_.Alloc(Space::kPrivate, SumType(node->dtype), sums.elements));
    lowering_.ForEachPoint(ranges_.Tiled(sums.group->deps), [&] {
      b_.Store(totals.back(), ranges_.PlaceIn(sums.points),
               JoinLanes(op, lowering_.Folded(sums, n), joining.lanes));
    });
  }
  if (joining.warps != 0) JoinThroughMemory(joining, sums, totals);
  if (joining.blocks != 0) JoinBlocks(joining, sums, totals);
  for (size_t n = 0; n < sums.group->nodes.size(); ++n) {
    const UOp* const node = sums.group->nodes[n];
    if (SumType(node->dtype) == node->dtype) {
      lowering_.PutResult(node, {totals[n], sums.points});
      continue;
    }
    ResultPlace result{b_.Alloc(Space::kPrivate, node->dtype, sums.elements), sums.points};
    lowering_.ForEachPoint(ranges_.Tiled(sums.group->deps), [&] {
      const ValueId place = ranges_.PlaceIn(sums.points);
      b_.Store(result.memory, place, b_.Cast(b_.Load(totals[n], place), node->dtype));
    });
    lowering_.PutResult(node, std::move(result));
  }
}

ValueId BlockLowering::JoinLanes(Op op, ValueId value, uint64_t lanes) {
  while (lanes != 0) {
    const uint64_t bit = std::bit_floor(lanes);
    const ValueId partner = b_.Add({.code = Code::kShuffle,
                                    .dtype = b_.at(value).dtype,
                                    .src = {value},
                                    .imm = {static_cast<int64_t>(bit), 0, 0}});
    value = lowering_.Combine(op, value, partner);
    lanes &= ~bit;
  }
  return value;
}

// As many reductions at once as there is memory for.
void BlockLowering::JoinThroughMemory(const Joining& joining, const OpenReduction& sums,
                                 const std::vector<ValueId>& totals) {
  const std::vector<int> points = ranges_.Tiled(sums.group->deps);
  const int64_t warps = int64_t{1} << std::popcount(joining.warps),
                rest = int64_t{1} << std::popcount(joining.rest);
  constexpr int64_t kWarpsByOne = 8;
  const bool by_halves = warps > kWarpsByOne && joining.lanes == kWarpThreads - 1;
  const auto type_of = [&](size_t n) { return b_.at(totals[n]).dtype; };
  for (size_t begin = 0; begin < totals.size();) {
    const DType type = type_of(begin);
    size_t end = begin;
    while (end < totals.size() && type_of(end) == type &&
           static_cast<int64_t>(end - begin) < codegen::JoinedAtOnce(joining.elements(), type))
      ++end;
    const ValueId memory = join_.at(type);
    const auto place = [&](size_t n, ValueId warp) {
      const ValueId result = b_.Plus(ranges_.PlaceIn(sums.points),
                                     b_.Int(static_cast<int64_t>(n - begin) * joining.points));
      return b_.Plus(b_.Times(b_.Plus(b_.Times(result, warps), warp), rest),
                     ThreadNumber(joining.rest));
    };
    b_.Barrier();
    lowering_.OpenScope();
    const ValueId branch =
        joining.lanes == 0
            ? -1
            : b_.If(b_.Alu(Op::kCmpEq, DType::kBool, {ThreadNumber(joining.lanes), b_.Int(0)}));
    for (size_t n = begin; n < end; ++n)
      lowering_.ForEachPoint(points, [&] {
        b_.Store(memory, place(n, ThreadNumber(joining.warps)),
                 b_.Load(totals[n], ranges_.PlaceIn(sums.points)));
      });
    if (branch >= 0) b_.EndIf(branch);
    lowering_.CloseScope();
    b_.Barrier();
    for (size_t n = begin; n < end; ++n)
      lowering_.ForEachPoint(points, [&] {
        const Op op = ReduceOf(sums.group->nodes[n]).op();
        ValueId value = -1;
        if (by_halves) {
          const auto lanes = static_cast<uint64_t>(warps - 1);
          value = JoinLanes(op, b_.Load(memory, place(n, ThreadNumber(lanes))), lanes);
        } else {
          value = b_.Load(memory, place(n, b_.Int(0)));
          for (int64_t warp = 1; warp < warps; ++warp)
            value = lowering_.Combine(op, value, b_.Load(memory, place(n, b_.Int(warp))));
        }
        b_.Store(totals[n], ranges_.PlaceIn(sums.points), value);
      });
    begin = end;
  }
}

// By reductions that have places of their own, so that one meeting of the blocks is enough for each
// group: who leaves the next group's results may find others who still read this one's.
void BlockLowering::JoinBlocks(const Joining& joining, const OpenReduction& sums,
                          const std::vector<ValueId>& totals) {
  const std::vector<int> points = ranges_.Tiled(sums.group->deps);
  const int64_t rest = int64_t{1} << std::popcount(joining.rest), first = left_elements_;
  left_elements_ += joining.left_elements() * static_cast<int64_t>(totals.size());
  OB_CHECK(left_elements_ <= b_.at(left_).imm[1]);  // each group is joined where it is written once
  const auto place = [&](size_t n) {
    const ValueId result =
        b_.Plus(ranges_.PlaceIn(sums.points), b_.Int(static_cast<int64_t>(n) * joining.points));
    return b_.Plus(b_.Plus(b_.Times(result, rest), ThreadNumber(joining.rest)), b_.Int(first));
  };
  lowering_.OpenScope();
  const ValueId branch = b_.If(
      b_.Alu(Op::kCmpEq, DType::kBool, {ThreadNumber(joining.lanes | joining.warps), b_.Int(0)}));
  for (size_t n = 0; n < totals.size(); ++n)
    lowering_.ForEachPoint(points, [&] {
      b_.Store(left_, place(n), b_.Load(totals[n], ranges_.PlaceIn(sums.points)));
    });
  b_.EndIf(branch);
  lowering_.CloseScope();
  b_.Do(Code::kClusterSync);
  for (size_t n = 0; n < totals.size(); ++n)
    lowering_.ForEachPoint(points, [&] {
      const Op op = ReduceOf(sums.group->nodes[n]).op();
      ValueId value = -1;
      for (int64_t rank = 0; rank < plan_.cluster; ++rank) {
        const ValueId part = b_.Add({.code = Code::kClusterLoad,
                                     .dtype = DType::kF32,
                                     .src = {left_, place(n), b_.Int(rank)}});
        value = rank == 0 ? part : lowering_.Combine(op, value, part);
      }
      b_.Store(totals[n], ranges_.PlaceIn(sums.points), value);
    });
}

}  // namespace outboard::program
