// Blocks of threads by a plan. All threads of a block run through the same loops; a range that they
// divide starts at a place of each thread's own. What lies beyond the extent is computed from the
// last value of the range instead, so that every thread gets to every barrier, and is not stored.
//
// Threads that divide a reduction (SHARE) have a partial result each. Within a warp these are
// joined by halves: each thread adds its partner's, whose number differs in one bit, so that all
// have the same bits in the end. Then the first threads of each warp leave theirs in the block's
// memory, where everybody adds them up, warp by warp; of more than eight warps each thread takes
// one, and all of a warp join them by halves again: a thread that reads all of them needs as many
// registers as hold its part of a long row. Blocks of a cluster (CLUSTER) then leave the
// sums for each other, and everybody adds them up, block by block.
#include <algorithm>
#include <bit>

#include "base/check.h"
#include "compiler/optimize/threads/row_copy.h"
#include "compiler/optimize/threads/shifted_copy.h"
#include "compiler/program/lower/lowering.h"

namespace outboard::program {

using codegen::CopyDim;
using codegen::CopyLayout;
using codegen::Joining;
using codegen::JoiningOf;

void Lowering::OpenBlock() {
  blocks_ = true;
  threads_ = plan_->block_threads();
  if (plan_->cluster > 1) {
    b_.SetCluster(plan_->cluster);
    const ValueId block = b_.Special(Grid::kBlock, plan_->tasks() * plan_->cluster);
    rank_ = b_.Modulo(block, plan_->cluster);
    left_ = b_.Alloc(Space::kShared, DType::kF32, codegen::ClusterJoinElements(kernel_, *plan_));
  }
  thread_ = threads_ > 1 ? b_.Special(Grid::kThread, threads_) : b_.Int(0);
  for (const codegen::ThreadAxis& axis : plan_->threads)
    if (axis.range >= 0) mapped_ |= RangeSet{1} << axis.range;
  for (const auto& [type, elements] : codegen::JoinMemory(kernel_, *plan_))
    join_[type] = b_.Alloc(Space::kShared, type, elements);
  rows_ = codegen::KeptRowsOf(kernel_, *plan_);
  for (const codegen::KeptRow& row : rows_) {
    const DType dtype = row.loads[0].first->dtype;
    kept_.push_back({b_.Alloc(Space::kPrivate, dtype, row.in_registers * row.lanes)});
    if (row.in_memory == 0) continue;
    kept_.back().of_block = b_.Alloc(Space::kShared, dtype, row.in_memory * row.lanes * threads_);
    for (const auto& [load, range] : row.loads) in_registers_[range] = row.in_registers;
  }
  for (size_t r = 0; r < in_registers_.size(); ++r)
    in_steps_[r] = codegen::MayRunInSteps(kernel_, *plan_, rows_, static_cast<int>(r));
  for (const codegen::BlockCopy& copy : plan_->copies) {
    copy_layouts_.push_back(codegen::LayOutCopy(kernel_, *plan_, copy));
    copies_.push_back(b_.Alloc(Space::kShared, copy.load->dtype, copy_layouts_.back().elements));
  }
  for (const int64_t slot : plan_->row_copies) {
    RowCopy& rows = row_copies_[slot];
    rows.layout = *codegen::LayOutRows(kernel_, *plan_, slot);
    rows.memory = b_.Alloc(Space::kShared, kernel_.slot_dtypes[static_cast<size_t>(slot)],
                           rows.layout.elements);
  }
  for (const UOp* load : plan_->shifted_copies) {
    ShiftedCopy& copy = shifted_copies_.emplace_back();
    copy.load = load;
    copy.layout = *codegen::LayOutShifted(kernel_, *plan_, load);
    copy.memory = b_.Alloc(Space::kShared, load->dtype, copy.layout.elements());
  }
}

// ---- who computes what

ValueId Lowering::ThreadNumber(uint64_t mask) {
  ValueId out = b_.Int(0);
  int64_t factor = 1;
  const auto add = [&](uint64_t bits, ValueId number, int64_t numbers) {
    while (bits != 0) {
      const int low = std::countr_zero(bits);
      const int count = std::countr_one(bits >> low);
      const int64_t first = int64_t{1} << low, size = int64_t{1} << count;
      ValueId part = b_.Divide(number, first);
      if (first * size < numbers) part = b_.Modulo(part, size);
      out = b_.Plus(out, b_.Times(part, factor));
      factor *= size;
      bits &= ~(((uint64_t{1} << count) - 1) << low);
    }
  };
  const auto of_block = static_cast<uint64_t>(threads_) - 1;
  add(mask & of_block, thread_, threads_);
  if (rank_ >= 0)
    add((mask & ~of_block) >> std::countr_zero(static_cast<uint64_t>(threads_)), rank_,
        plan_->cluster);
  return out;
}

// The row's first value lies at a constant plus what the other ranges give: modulo a power of two,
// by what is left of each coefficient. MOD of a negative number is negative, which other terms may
// be. Counted in vectors, so that it is seen to be whole ones.
ValueId Lowering::ValuesBeforeRow(const Tile& tile) {
  codegen::AffineForms forms;
  const codegen::Affine& form = forms.Of(tile.aligned);
  const int64_t lanes = tile.lanes(), vectors = tile.align / lanes;
  const auto left = [&](uint64_t number) {
    return static_cast<int64_t>(number & static_cast<uint64_t>(tile.align - 1)) / lanes;
  };
  ValueId first = b_.Int(left(form.constant));
  bool negative = false;
  for (const auto& [term, coefficient] : form.terms) {
    if (term == kernel_.ranges[tile.range].node || left(coefficient) == 0) continue;
    negative = negative || term->op != Op::kRange;
    first = b_.Plus(first, b_.Times(b_.Modulo(Emit(term), vectors), left(coefficient)));
  }
  first = b_.Modulo(first, vectors);
  if (negative) first = b_.Modulo(b_.Plus(first, b_.Int(vectors)), vectors);
  return b_.Times(first, lanes);
}

ValueId Lowering::PlaceOfThread(int range) {
  if (range < kernel_.output_count) return ThreadNumber(plan_->ThreadBits(range));
  for (const ReduceGroup& group : kernel_.groups)
    if (std::find(group.ranges.begin(), group.ranges.end(), range) != group.ranges.end())
      return ThreadNumber(plan_->FreeBits(group));
  OB_CHECK(false && "a range is of the outputs or of a group");
  return -1;
}

ValueId Lowering::BelowEndsOf(RangeSet ranges) {
  ValueId below = -1;
  for (; blocks_ && ranges != 0; ranges &= ranges - 1) {
    const int r = std::countr_zero(ranges);
    const UOp* const end = kernel_.ranges[r].end();
    const OpenRange& range = ranges_[r];
    if (end != nullptr && range.whole && range.tiled() && range.unclamped >= 0)
      below = b_.And(below, b_.Less(range.unclamped, Emit(end)));
  }
  return below;
}

// One of the blocks and threads that have the same value.
ValueId Lowering::StoresHere(RangeSet deps) {
  ValueId here = b_.And(ranges_.WithinExtents(deps), BelowEndsOf(deps));
  const auto first = [&](ValueId number) {
    here = b_.And(here, b_.Alu(Op::kCmpEq, DType::kBool, {number, b_.Int(0)}));
  };
  if (const uint64_t bits = plan_->ThreadBits(-1); bits != 0) first(ThreadNumber(bits));
  for (RangeSet free = mapped_ & ~deps; free != 0; free &= free - 1)
    first(ranges_[std::countr_zero(free)].unaligned);
  return here;
}

// ---- divided reductions

void Lowering::JoinResults(int index, const Reduction& sums) {
  const Joining joining = JoiningOf(kernel_, *plan_, static_cast<size_t>(index));
  std::vector<ValueId> totals;
  for (size_t n = 0; n < sums.group->nodes.size(); ++n) {
    const UOp* const node = sums.group->nodes[n];
    const Op op = ReduceOf(node).op();
    totals.push_back(b_.Alloc(Space::kPrivate, SumType(node->dtype), sums.elements));
    Statement(ranges_.Tiled(sums.group->deps), [&] {
      b_.Store(totals.back(), ranges_.PlaceIn(sums.points),
               JoinLanes(op, Folded(sums, n), joining.lanes));
    });
  }
  if (joining.warps != 0) JoinThroughMemory(joining, sums, totals);
  if (joining.blocks != 0) JoinBlocks(joining, sums, totals);
  for (size_t n = 0; n < sums.group->nodes.size(); ++n) {
    const UOp* const node = sums.group->nodes[n];
    if (SumType(node->dtype) == node->dtype) {
      PutResult(node, {totals[n], sums.points});
      continue;
    }
    ResultPlace result{b_.Alloc(Space::kPrivate, node->dtype, sums.elements), sums.points};
    Statement(ranges_.Tiled(sums.group->deps), [&] {
      const ValueId place = ranges_.PlaceIn(sums.points);
      b_.Store(result.memory, place, b_.Cast(b_.Load(totals[n], place), node->dtype));
    });
    PutResult(node, std::move(result));
  }
}

ValueId Lowering::JoinLanes(Op op, ValueId value, uint64_t lanes) {
  while (lanes != 0) {
    const uint64_t bit = std::bit_floor(lanes);
    const ValueId partner = b_.Add({.code = Code::kShuffle,
                                    .dtype = b_.at(value).dtype,
                                    .src = {value},
                                    .imm = {static_cast<int64_t>(bit), 0, 0}});
    value = Combine(op, value, partner);
    lanes &= ~bit;
  }
  return value;
}

// As many reductions at once as there is memory for.
void Lowering::JoinThroughMemory(const Joining& joining, const Reduction& sums,
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
    OpenScope();
    const ValueId branch =
        joining.lanes == 0
            ? -1
            : b_.If(b_.Alu(Op::kCmpEq, DType::kBool, {ThreadNumber(joining.lanes), b_.Int(0)}));
    for (size_t n = begin; n < end; ++n)
      Statement(points, [&] {
        b_.Store(memory, place(n, ThreadNumber(joining.warps)),
                 b_.Load(totals[n], ranges_.PlaceIn(sums.points)));
      });
    if (branch >= 0) b_.EndIf(branch);
    CloseScope();
    b_.Barrier();
    for (size_t n = begin; n < end; ++n)
      Statement(points, [&] {
        const Op op = ReduceOf(sums.group->nodes[n]).op();
        ValueId value = -1;
        if (by_halves) {
          const auto lanes = static_cast<uint64_t>(warps - 1);
          value = JoinLanes(op, b_.Load(memory, place(n, ThreadNumber(lanes))), lanes);
        } else {
          value = b_.Load(memory, place(n, b_.Int(0)));
          for (int64_t warp = 1; warp < warps; ++warp)
            value = Combine(op, value, b_.Load(memory, place(n, b_.Int(warp))));
        }
        b_.Store(totals[n], ranges_.PlaceIn(sums.points), value);
      });
    begin = end;
  }
}

// By reductions that have places of their own, so that one meeting of the blocks is enough for each
// group: who leaves the next group's results may find others who still read this one's.
void Lowering::JoinBlocks(const Joining& joining, const Reduction& sums,
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
  OpenScope();
  const ValueId branch = b_.If(
      b_.Alu(Op::kCmpEq, DType::kBool, {ThreadNumber(joining.lanes | joining.warps), b_.Int(0)}));
  for (size_t n = 0; n < totals.size(); ++n)
    Statement(points, [&] {
      b_.Store(left_, place(n), b_.Load(totals[n], ranges_.PlaceIn(sums.points)));
    });
  b_.EndIf(branch);
  CloseScope();
  b_.Do(Code::kClusterSync);
  for (size_t n = 0; n < totals.size(); ++n)
    Statement(points, [&] {
      const Op op = ReduceOf(sums.group->nodes[n]).op();
      ValueId value = -1;
      for (int64_t rank = 0; rank < plan_->cluster; ++rank) {
        const ValueId part = b_.Add({.code = Code::kClusterLoad,
                                     .dtype = DType::kF32,
                                     .src = {left_, place(n), b_.Int(rank)}});
        value = rank == 0 ? part : Combine(op, value, part);
      }
      b_.Store(totals[n], ranges_.PlaceIn(sums.points), value);
    });
}

// ---- operands in the block's memory

bool Lowering::CopiesFor(const Reduction& sums) const {
  return plan_ != nullptr &&
         std::any_of(plan_->copies.begin(), plan_->copies.end(),
                     [&](const codegen::BlockCopy& copy) { return copy.group == sums.index; });
}

int64_t Lowering::CopiesOfThread(size_t copy) const {
  const CopyLayout& layout = copy_layouts_[copy];
  int64_t runs = 1;
  for (const CopyDim& dim : layout.dims) runs *= dim.extent;
  return (runs / layout.lanes + threads_ - 1) / threads_;
}

void Lowering::CopiesForStep(const Reduction& sums) {
  b_.Barrier();  // the step before is read
  for (size_t i = 0; i < copies_.size(); ++i)
    if (plan_->copies[i].group == sums.index)
      OverCopy(i, -1, [&](ValueId, ValueId place) {
        b_.Store(copies_[i], place, Emit(plan_->copies[i].load));
      });
  b_.Barrier();
  ReadCopies(sums);
}

void Lowering::ReadCopies(const Reduction& sums) {
  for (size_t i = 0; i < copies_.size(); ++i)
    if (plan_->copies[i].group == sums.index) {
      copied_.push_back(plan_->copies[i].load);
      Provide(copied_.back(), [this, i] { return b_.Load(copies_[i], PlaceInBlock(i)); });
    }
}

void Lowering::ForgetCopies() {
  for (const UOp* load : copied_) Withdraw(load);
  copied_.clear();
}

// The elements of the next step are loaded before this one is computed, and wait in registers.
bool Lowering::LoopWithCopiesAhead(const Reduction& sums) {
  if (sums.plan.loops.size() != 1 || sums.plan.loops[0].step == 1 || !CopiesFor(sums)) return false;
  std::vector<size_t> copies;
  for (size_t i = 0; i < copies_.size(); ++i)
    if (plan_->copies[i].group == sums.index) {
      if (CopiesOfThread(i) > kCopiesWrittenOutMax) return false;
      copies.push_back(i);
    }
  const Tile& tile = sums.plan.loops[0];
  std::vector<ValueId> ahead;
  for (const size_t i : copies)
    ahead.push_back(b_.Alloc(Space::kPrivate, plan_->copies[i].load->dtype,
                             CopiesOfThread(i) * copy_layouts_[i].lanes));
  const auto load = [&](ValueId step) {
    for (size_t c = 0; c < copies.size(); ++c)
      OverCopy(copies[c], step, [&](ValueId own, ValueId) {
        b_.Store(ahead[c], own, Emit(plan_->copies[copies[c]].load));
      });
  };
  load(b_.Int(0));
  OverTile(tile, [&] {
    b_.Barrier();  // the step before is read
    for (size_t c = 0; c < copies.size(); ++c)
      OverCopy(copies[c], b_.Int(0), [&](ValueId own, ValueId place) {
        b_.Store(copies_[copies[c]], place, b_.Load(ahead[c], own));
      });
    b_.Barrier();
    const ValueId next = b_.Plus(ranges_[tile.range].step, b_.Int(1));
    const ValueId more = b_.Less(next, b_.Int(tile.blocks()));
    int64_t known = 1;
    if (!b_.IsConst(more, &known) || known != 0) {
      const ValueId branch = b_.If(more);
      load(next);
      b_.EndIf(branch);
    }
    ReadCopies(sums);
    ReduceBody(sums);
    ForgetCopies();
  });
  return true;
}

// Calls `inside` for each element that this thread copies, with its number among the thread's own
// and its place in the block's memory, while its ranges are bound: in step `step` of the innermost
// loop, or (-1) the one that is open. Thread by thread along the dimension in which memory is
// consecutive, then along the others.
void Lowering::OverCopy(size_t copy, ValueId step,
                        const std::function<void(ValueId own, ValueId place)>& inside) {
  const CopyLayout& layout = copy_layouts_[copy];
  std::vector<size_t> order;  // the one that varies fastest first
  if (layout.along >= 0) order.push_back(static_cast<size_t>(layout.along));
  for (size_t d = layout.dims.size(); d-- > 0;)
    if (static_cast<int>(d) != layout.along) order.push_back(d);
  int64_t runs = 1;
  for (const CopyDim& dim : layout.dims) runs *= dim.extent;
  runs /= layout.lanes;

  // Nothing is known of what the step has at the thread's own points.
  ValueScopes scopes;
  std::swap(scopes, computed_);
  std::vector<ValueId> values;
  for (const CopyDim& dim : layout.dims) values.push_back(ranges_[dim.range].value);
  const int64_t count = CopiesOfThread(copy);
  const ValueId number = b_.Loop(count, count <= kCopiesWrittenOutMax ? How::kUnroll : How::kPlain);
  ValueId left = b_.Plus(b_.Times(number, threads_), thread_);
  const ValueId some = runs % threads_ == 0 ? -1 : b_.If(b_.Less(left, b_.Int(runs)));
  ValueId own = b_.Times(number, layout.lanes), place = b_.Int(0);
  for (size_t i = 0; i < order.size(); ++i) {
    const CopyDim& dim = layout.dims[order[i]];
    const int64_t extent = kernel_.ranges[dim.range].extent;
    const int64_t lanes = static_cast<int>(order[i]) == layout.along ? layout.lanes : 1;
    const ValueId at = i + 1 == order.size() ? left : b_.Modulo(left, dim.extent / lanes);
    left = b_.Divide(left, dim.extent / lanes);
    const ValueId within = b_.Times(at, lanes);
    OpenRange& range = ranges_[dim.range];
    const bool ahead = dim.reduced && step >= 0;
    ValueId value = ahead ? b_.Times(step, dim.extent) : b_.Times(range.step, range.tile_step);
    value = b_.Plus(value, within);
    // The tile's rest may have fewer values than the copy.
    const bool rest = range.pieces == &plan_->tiles[dim.range].rest;
    if (dim.reduced ? extent % dim.extent != 0 : range.cut || rest)
      value = b_.Min(value, b_.Int(extent - lanes));
    range.value = value;
    place = b_.Plus(place, b_.Times(within, dim.stride));
  }
  const ValueId lane = layout.lanes > 1 ? b_.Loop(layout.lanes, How::kVector, layout.lanes) : -1;
  if (lane >= 0) {
    const CopyDim& along = layout.dims[static_cast<size_t>(layout.along)];
    ranges_[along.range].value = b_.Plus(ranges_[along.range].value, lane);
    place = b_.Plus(place, b_.Times(lane, along.stride));
    own = b_.Plus(own, lane);
  }
  inside(own, place);
  if (lane >= 0) b_.End(lane);
  if (some >= 0) b_.EndIf(some);
  b_.End(number);
  for (size_t d = 0; d < values.size(); ++d) ranges_[layout.dims[d].range].value = values[d];
  std::swap(scopes, computed_);
}

// Of the current point.
ValueId Lowering::PlaceInBlock(size_t copy) {
  ValueId place = b_.Int(0);
  for (const CopyDim& dim : copy_layouts_[copy].dims) {
    ValueId within = b_.Int(0);
    if (!dim.reduced) within = PlaceInTile(dim.range);
    else if (ranges_[dim.range].tiled()) within = ranges_[dim.range].in_tile;
    place = b_.Plus(place, b_.Times(within, dim.stride));
  }
  return place;
}

}  // namespace outboard::program
