// Rows in the memory of a block of threads: those that it copies whole (LOCAL), what threads keep
// of a long one (KEEP), and operands that begin elsewhere in a sector than an aligned row does.
#include <algorithm>
#include <utility>

#include "compiler/divide_up.h"
#include "compiler/optimize/threads/row_copy.h"
#include "compiler/optimize/threads/shifted_copy.h"
#include "compiler/program/lower/block_lowering.h"
#include "compiler/program/lower/lowering.h"
#include "compiler/rewrite/rules/linear.h"

namespace outboard::program {

// ---- rows that threads keep

std::pair<ValueId, ValueId> BlockLowering::PlaceOfKept(size_t row, int range) {
  const KeptMemory& memory = kept_[row];
  if (!ranges_[range].tiled()) return {memory.own, b_.Int(0)};
  if (memory.of_block < 0 || !ranges_[range].behind_registers)
    return {memory.own, ranges_[range].own_number};
  const int64_t lanes = kept_rows_[row].lanes;
  const ValueId vector = b_.Plus(ranges_[range].piece, b_.Int(-kept_rows_[row].in_registers));
  ValueId place = b_.Times(b_.Plus(b_.Times(vector, threads_), thread_), lanes);
  if (ranges_.lanes().range == range) place = b_.Plus(place, ranges_.lanes().lane);
  return {memory.of_block, place};
}

void BlockLowering::KeepRows(size_t group) {
  for (size_t i = 0; i < kept_rows_.size(); ++i) {
    const codegen::KeptRow& row = kept_rows_[i];
    if (row.group != group) continue;
    const UOp* load = nullptr;
    for (const auto& [other, range] : row.loads) {
      if (range == row.range) load = other;
      lowering_.Withdraw(other);  // another tile of the task's ranges has kept its own
    }
    const std::vector<Tile>& loops = plan_.groups[group].loops;
    // Sums at the edges of odd rows may read what lies outside, too.
    if (loops[0].odd())
      for (int64_t piece = 0; piece < row.in_registers; ++piece)
        if (const Piece& own = loops[0].pieces()[static_cast<size_t>(piece)];
            loops[0].EdgesOf(own).any() && codegen::LiesMostlyWithin(loops[0], own))
          b_.Store(kept_[i].own, b_.Int(piece * row.lanes),
                   b_.Splat(b_.Const(load->dtype, 0), static_cast<int>(row.lanes)));
    lowering_.OverTile(loops[0], [&] {
      lowering_.ForEachPoint(ranges_.Tiled(RangeSet{1} << row.range), [&] {
        const auto [memory, place] = PlaceOfKept(i, row.range);
        b_.Store(memory, place, lowering_.Emit(load));
      });
    });
    for (const auto& entry : row.loads)
      lowering_.Provide(entry.first, [this, i, range = entry.second] {
        const auto [memory, place] = PlaceOfKept(i, range);
        return b_.Load(memory, place);
      });
  }
}

// ---- rows that are copied whole

void BlockLowering::CopyRows() {
  if (plan_.row_copies.empty()) return;
  for (const int64_t slot : plan_.row_copies) {
    RowCopy& rows = row_copies_.at(slot);
    const codegen::RowLayout& layout = rows.layout;
    ValueId first = b_.Int(layout.first);
    for (const auto& [range, coefficient] : layout.rows)
      first = b_.Plus(
          first, b_.Times(ranges_[range].step, coefficient * ranges_[range].tile_step));
    rows.copied = true;
    const int64_t pieces = layout.elements / layout.piece, count = DivideUp(pieces, threads_);
    const ValueId number =
        b_.Loop(count, count <= kCopiesWrittenOutMax ? How::kUnroll : How::kPlain);
    const ValueId piece = b_.Plus(b_.Times(number, threads_), thread_);
    const ValueId some = pieces % threads_ == 0 ? -1 : b_.If(b_.Less(piece, b_.Int(pieces)));
    const ValueId to = b_.Times(piece, layout.piece), from = b_.Plus(first, to);
    Instruction copy{.code = Code::kCopy,
                     .src = {rows.memory, to, lowering_.buffer(slot), from},
                     .imm = {layout.piece, layout.piece > 1 ? 1 : 0, 0}};
    if (layout.may_end)
      copy.src.push_back(b_.Less(from, b_.Int(kernel_.slot_elements[static_cast<size_t>(slot)])));
    b_.Add(std::move(copy));
    if (some >= 0) b_.EndIf(some);
    b_.End(number);
  }
  b_.Add({.code = Code::kCommit});
  b_.Add({.code = Code::kWait, .imm = {0, 0, 0}});
  b_.Barrier();
}

ValueId BlockLowering::PlaceInRows(const codegen::RowLayout& layout, const UOp* index) {
  const LinearSum sum = LinearOf(index);
  ValueId place = b_.Int(sum.constant - layout.first);
  for (const auto& [term, coefficient] : sum.terms) {
    ValueId within = -1;
    if ((kernel_.DepsOf(term) & kernel_.OutputSet()) == 0) {
      within = lowering_.Emit(term);
    } else {
      within = PlaceInTile(kernel_.IndexOf(term));
    }
    place = b_.Plus(place, b_.Times(within, coefficient));
  }
  return place;
}

// Of the current point, from the block's first value of an output range on.
ValueId BlockLowering::PlaceInTile(int range) {
  const Tile& tile = plan_.tiles[static_cast<size_t>(range)];
  ValueId within = b_.Int(0);
  if (tile.threads > 1) within = b_.Times(PlaceOfThread(range), tile.run);
  return ranges_[range].tiled() ? b_.Plus(within, ranges_[range].in_tile) : within;
}

// ---- operands of aligned rows

// Each thread its own vector, as if the axis began with a sector, and the first ones what lies in
// front of the block's.
void BlockLowering::CopyShifted() {
  for (const ShiftedCopy& copy : shifted_copies_) lowering_.Withdraw(copy.load);
  for (const ShiftedCopy& copy : shifted_copies_) {
    const codegen::ShiftedLayout& layout = copy.layout;
    OpenRange& along = ranges_[layout.range];
    const ValueId value_before = along.value;
    const auto move = [&](ValueId row, ValueId within, int64_t before) {
      lowering_.OpenScope();
      const int64_t lanes = layout.lanes, last = kernel_.ranges[layout.range].extent - lanes;
      const ValueId lane = lanes > 1 ? b_.Loop(lanes, How::kVector, lanes) : b_.Int(0);
      ValueId value = b_.Plus(b_.Times(row, layout.apart), b_.Plus(within, b_.Int(-before)));
      if (rank_ >= 0) value = b_.Plus(value, b_.Times(rank_, layout.of_block));
      value = b_.Max(b_.Min(value, b_.Int(last)), b_.Int(0));
      along.value = b_.Plus(value, lane);
      const ValueId place = b_.Plus(b_.Times(row, layout.row_elements()),
                                    b_.Plus(within, b_.Int(layout.before - before)));
      b_.Store(copy.memory, b_.Plus(place, lane), lowering_.Emit(copy.load));
      if (lanes > 1) b_.End(lane);
      lowering_.CloseScope();
    };
    const ValueId row = b_.Loop(layout.rows, How::kUnroll);
    const ValueId within = b_.Times(thread_, layout.lanes);
    move(row, within, 0);
    const ValueId some = b_.If(b_.Less(within, b_.Int(layout.before)));
    move(row, within, layout.before);
    b_.EndIf(some);
    b_.End(row);
    along.value = value_before;
  }
  for (const ShiftedCopy& copy : shifted_copies_)
    lowering_.Provide(copy.load, [this, &copy] { return LoadShifted(copy); });
}

ValueId BlockLowering::LoadShifted(const ShiftedCopy& copy) {
  const codegen::ShiftedLayout& layout = copy.layout;
  const int range = layout.range;
  ValueId place = b_.Plus(b_.Times(thread_, layout.lanes), b_.Int(layout.before));
  place = b_.Plus(place, b_.Negated(ValuesBeforeRow(plan_.tiles[static_cast<size_t>(range)])));
  if (ranges_[range].tiled()) {
    place = b_.Plus(place, b_.Times(ranges_[range].piece, layout.row_elements()));
    if (ranges_.lanes().range == range) place = b_.Plus(place, ranges_.lanes().lane);
  }
  return b_.Load(copy.memory, place);
}

}  // namespace outboard::program
