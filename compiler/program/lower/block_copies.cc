// Operands of a reduction's step in the block's memory, copied by all of its threads.
#include <algorithm>

#include "compiler/program/lower/block_lowering.h"
#include "compiler/program/lower/lowering.h"

namespace outboard::program {

using codegen::CopyDim;
using codegen::CopyLayout;

bool BlockLowering::CopiesFor(const OpenReduction& sums) const {
  return std::any_of(plan_.copies.begin(), plan_.copies.end(),
                     [&](const codegen::BlockCopy& copy) { return copy.group == sums.index; });
}

int64_t BlockLowering::CopiesOfThread(size_t copy) const {
  const CopyLayout& layout = copy_layouts_[copy];
  int64_t runs = 1;
  for (const CopyDim& dim : layout.dims) runs *= dim.extent;
  return (runs / layout.lanes + threads_ - 1) / threads_;
}

void BlockLowering::CopiesForStep(const OpenReduction& sums) {
  b_.Barrier();  // the step before is read
  for (size_t i = 0; i < copies_.size(); ++i)
    if (plan_.copies[i].group == sums.index)
      OverCopy(i, -1, [&](ValueId, ValueId place) {
        b_.Store(copies_[i], place, lowering_.Emit(plan_.copies[i].load));
      });
  b_.Barrier();
  ReadCopies(sums);
}

void BlockLowering::ReadCopies(const OpenReduction& sums) {
  for (size_t i = 0; i < copies_.size(); ++i)
    if (plan_.copies[i].group == sums.index) {
      copied_.push_back(plan_.copies[i].load);
      lowering_.Provide(copied_.back(), [this, i] { return b_.Load(copies_[i], PlaceInBlock(i)); });
    }
}

void BlockLowering::ForgetCopies() {
  for (const UOp* load : copied_) lowering_.Withdraw(load);
  copied_.clear();
}

// The elements of the next step are loaded before this one is computed, and wait in registers.
bool BlockLowering::LoopWithCopiesAhead(const OpenReduction& sums) {
  if (sums.plan.loops.size() != 1 || sums.plan.loops[0].step == 1 || !CopiesFor(sums)) return false;
  std::vector<size_t> copies;
  for (size_t i = 0; i < copies_.size(); ++i)
    if (plan_.copies[i].group == sums.index) {
      if (CopiesOfThread(i) > kCopiesWrittenOutMax) return false;
      copies.push_back(i);
    }
  const Tile& tile = sums.plan.loops[0];
  std::vector<ValueId> ahead;
  for (const size_t i : copies)
    ahead.push_back(b_.Alloc(Space::kPrivate, plan_.copies[i].load->dtype,
                             CopiesOfThread(i) * copy_layouts_[i].lanes));
  const auto load = [&](ValueId step) {
    for (size_t c = 0; c < copies.size(); ++c)
      OverCopy(copies[c], step, [&](ValueId own, ValueId) {
        b_.Store(ahead[c], own, lowering_.Emit(plan_.copies[copies[c]].load));
      });
  };
  load(b_.Int(0));
  lowering_.OverTile(tile, [&] {
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
    lowering_.ReduceBody(sums);
    ForgetCopies();
  });
  return true;
}

// Calls `inside` for each element that this thread copies, with its number among the thread's own
// and its place in the block's memory, while its ranges are open: in step `step` of the innermost
// loop, or (-1) the one that is open. Thread by thread along the dimension in which memory is
// consecutive, then along the others.
void BlockLowering::OverCopy(size_t copy, ValueId step,
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
  lowering_.SwapScopes(scopes);
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
    const bool rest = range.pieces == &plan_.tiles[dim.range].rest;
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
  lowering_.SwapScopes(scopes);
}

// Of the current point.
ValueId BlockLowering::PlaceInBlock(size_t copy) {
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
