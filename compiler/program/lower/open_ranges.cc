#include "compiler/program/lower/open_ranges.h"

#include <bit>

namespace outboard::program {

void OpenRanges::Open(int range, ValueId value) {
  OpenRange open;
  open.base = open.step = open.step_in_block = open.unaligned = open.value = value;
  (*this)[range] = open;
}

void OpenRanges::OpenTile(int range, const OpenRange& open) {
  OpenRange& here = (*this)[range] = open;
  here.edges = here.EdgesOf((*here.pieces)[0]);
  if (here.tiled()) {
    tiled_.push_back(range);
  } else {
    here.value = Clamped(range, here.base, 1);
  }
}

void OpenRanges::Close(int range) {
  if ((*this)[range].tiled()) tiled_.pop_back();
  (*this)[range] = {};
}

void OpenRanges::OpenAll(const std::vector<int>& ranges, ValueId index, int64_t columns) {
  for (size_t i = ranges.size(); i-- > 0;) {
    const int64_t steps = kernel_.ranges[ranges[i]].extent / columns;
    Open(ranges[i], b_.Times(i == 0 ? index : b_.Modulo(index, steps), columns));
    if (i > 0) index = b_.Divide(index, steps);
    columns = 1;
  }
}

bool OpenRanges::AreOpen(RangeSet ranges) const {
  for (; ranges != 0; ranges &= ranges - 1)
    if (!(*this)[std::countr_zero(ranges)].is_open()) return false;
  return true;
}

std::vector<int> OpenRanges::Tiled(RangeSet ranges, int last) const {
  std::vector<int> out;
  for (const int r : tiled_)
    if ((ranges >> r & 1) && r != last) out.push_back(r);
  if (last >= 0 && (ranges >> last & 1)) out.push_back(last);
  return out;
}

int OpenRanges::VectorRange(RangeSet ranges) const {
  for (const int r : tiled_)
    if (ranges >> r & 1)
      for (const Piece& piece : *(*this)[r].pieces)
        if (piece.lanes > 1) return r;
  return -1;
}

ValueId OpenRanges::PlaceIn(const std::vector<int>& ranges) {
  ValueId place = b_.Int(0);
  for (const int r : ranges)
    place = b_.Plus(b_.Times(place, (*this)[r].extent()), (*this)[r].own_number);
  return place;
}

ValueId OpenRanges::Clamped(int range, ValueId value, int lanes) {
  const Tile::Edges& edges = (*this)[range].edges;
  if (edges.beyond) value = b_.Min(value, b_.Int(kernel_.ranges[range].extent - lanes));
  return edges.before ? b_.Max(value, b_.Int(0)) : value;
}

ValueId OpenRanges::WithinExtents(RangeSet ranges) {
  ValueId inside = -1;
  for (; ranges != 0; ranges &= ranges - 1) {
    const int r = std::countr_zero(ranges);
    const OpenRange& range = (*this)[r];
    if (range.beyond_as_a_whole)
      inside = b_.And(inside, b_.Less(range.unaligned, b_.Int(kernel_.ranges[r].extent)));
    if (!range.is_open() || !range.cut) continue;
    const ValueId first = range.tiled() ? range.unclamped : range.base;
    if (range.edges.beyond)
      inside = b_.And(inside, b_.Less(first, b_.Int(kernel_.ranges[r].extent)));
    if (range.edges.before) inside = b_.And(inside, b_.Less(b_.Int(-1), first));
  }
  return inside;
}

ValueId OpenRanges::OpenLanes(int range, int count, int active) {
  lanes_ = {range, b_.Loop(count, How::kVector, count), count, active};
  return lanes_.lane;
}

void OpenRanges::CloseLanes() {
  b_.End(lanes_.lane);
  lanes_ = {};
}

OpenRanges::Parts OpenRanges::PartsOf(int range, const Tile::Edges& edges, int lanes) {
  const ValueId first = (*this)[range].unclamped;
  const int64_t extent = kernel_.ranges[static_cast<size_t>(range)].extent;
  Parts parts;
  ValueId some = -1;
  if (edges.before) {
    parts.whole = b_.Less(b_.Int(-1), first);
    some = b_.Less(b_.Int(-lanes), first);
  }
  if (edges.beyond) {
    parts.whole = b_.And(parts.whole, b_.Less(first, b_.Int(extent - lanes + 1)));
    some = b_.And(some, b_.Less(first, b_.Int(extent)));
  }
  parts.in_part = b_.And(
      some, b_.Alu(Op::kXor, DType::kBool, {parts.whole, b_.Const(DType::kBool, 1)}));
  return parts;
}

ValueId OpenRanges::ActiveLanes(RangeSet ranges) {
  if (lanes_.range < 0 || !(ranges >> lanes_.range & 1)) return -1;
  if (const OpenRange& range = (*this)[lanes_.range]; range.in_part.any()) {
    const ValueId extent = b_.Int(kernel_.ranges[static_cast<size_t>(lanes_.range)].extent);
    return b_.And(range.in_part.before ? b_.Less(b_.Int(-1), range.value) : -1,
                  range.in_part.beyond ? b_.Less(range.value, extent) : -1);
  }
  return lanes_.active == lanes_.count ? -1 : b_.Less(lanes_.lane, b_.Int(lanes_.active));
}

}  // namespace outboard::program
