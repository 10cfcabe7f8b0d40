// Loops over the blocks of tiles, and over the points and lanes of a block.
#include <algorithm>
#include <bit>

#include "compiler/optimize/operands/mma.h"
#include "compiler/program/lower/lowering.h"

namespace outboard::program {
namespace {

using codegen::VectorsOfStep;

// Pieces of a tile that differ by their number only.
struct Segment {
  int64_t first = 0;  // number of the first piece
  int64_t count = 1;
  int64_t offset = 0;  // of the first piece
  int64_t apart = 1;   // from one piece to the next
  int64_t place = 0;   // of the first piece, among the values of a thread
  int lanes = 1;
  int active = 1;
  Tile::Edges edges;
};

// Pieces at an edge of the range are handled apart: some threads' values there lie outside of it.
// Number `split_at` begins a segment.
std::vector<Segment> SegmentsOf(const std::vector<Piece>& pieces, int64_t split_at,
                                const std::function<Tile::Edges(const Piece&)>& edges_of) {
  std::vector<Segment> out;
  int64_t place = 0;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const Piece& p = pieces[i];
    const Tile::Edges edges = edges_of(p);
    place += p.lanes;
    if (!out.empty() && static_cast<int64_t>(i) != split_at) {
      Segment& last = out.back();
      if (last.count == 1) last.apart = p.offset - last.offset;
      if (last.lanes == p.lanes && last.active == p.active && last.edges == edges &&
          p.offset == last.offset + last.count * last.apart) {
        ++last.count;
        continue;
      }
    }
    out.push_back({static_cast<int64_t>(i), 1, p.offset, p.lanes, place - p.lanes, p.lanes,
                   p.active, edges});
  }
  return out;
}

// Segments from number `first` on are whole steps, or shorter than one.
void DivideIntoSteps(std::vector<Segment>& segments, int64_t first) {
  for (size_t i = 0; i < segments.size(); ++i) {
    const int64_t whole = VectorsOfStep(segments[i].lanes), left = segments[i].count % whole;
    if (segments[i].first < first || segments[i].count < whole || left == 0) continue;
    Segment last = segments[i];
    segments[i].count -= left;
    last.count = left;
    last.first += segments[i].count;
    last.offset += segments[i].count * last.apart;
    last.place += segments[i].count * last.lanes;
    segments.insert(segments.begin() + static_cast<int64_t>(i) + 1, last);
    ++i;
  }
}

}  // namespace

ValueId Lowering::IfBelowEnds(const codegen::MmaProduct& product, ValueId row, int64_t rows,
                              ValueId column, int64_t columns) {
  ValueId all = And(ReachesBelowEnds(product.rows.ranges, row, rows),
                    ReachesBelowEnds(product.columns.ranges, column, columns));
  for (const int r : product.batch)
    if (const UOp* const end = kernel_.ranges[r].end())
      all = And(all, b_.Less(value_[r], Emit(end)));
  return all < 0 ? -1 : b_.If(all);
}

ValueId Lowering::ReachesBelowEnds(const std::vector<int>& ranges, ValueId first, int64_t size) {
  ValueId all = -1;
  int64_t below = 1;
  for (size_t i = ranges.size(); i-- > 0;) {
    const int64_t extent = kernel_.ranges[ranges[i]].extent;
    const UOp* const end = kernel_.ranges[ranges[i]].end();
    // Whether the range only grows within a tile: an inner one may wrap around to 0.
    const bool grows = i == 0 || extent * below % size == 0;
    if (end != nullptr && grows) {
      const ValueId value = b_.Divide(first, below);
      all = And(all, b_.Less(i == 0 ? value : b_.Modulo(value, extent), Emit(end)));
    }
    below *= extent;
  }
  return all;
}

void Lowering::TaskLoops(size_t level, const std::vector<ValueId>& steps) {
  if (level == steps.size()) {
    CopyRows();
    CopyShifted();
    Inside(level);
    return;
  }
  const Loop& loop = plan_->loops[level];
  const Tile& tile = plan_->tiles[loop.range];
  mapped_ |= RangeSet{1} << tile.range;
  const UOp* const end = kernel_.ranges[tile.range].end();
  const auto with = [&](ValueId condition, ValueId base, const std::function<void()>& bind) {
    Enter();
    const ValueId branch = condition < 0 ? -1 : b_.If(condition);
    const ValueId limit = end == nullptr ? -1 : b_.If(b_.Less(base, Emit(end)));
    bind();
    TaskLoops(level + 1, steps);
    if (loop.block == 0) Unbind(tile.range);
    if (limit >= 0) b_.EndIf(limit);
    if (branch >= 0) b_.EndIf(branch);
    Leave();
  };
  if (loop.block > 0) {
    with(-1, b_.Times(steps[level], loop.block), [&] {
      block_[loop.range] = {steps[level], loop.block};
    });
    block_[loop.range] = {};
    return;
  }
  const auto blocks = [&](ValueId condition, ValueId step, const std::vector<Piece>& pieces) {
    with(condition, b_.Times(step, tile.step), [&] { BindTile(tile, step, step, pieces); });
  };
  const bool both = tile.trips > 0 && !tile.rest.empty();
  const ValueId trips = b_.Int(tile.trips);
  if (tile.trips > 0) blocks(both ? b_.Less(steps[level], trips) : -1, steps[level], tile.main);
  if (!tile.rest.empty())
    blocks(both ? b_.Alu(Op::kCmpEq, DType::kBool, {steps[level], trips}) : -1, trips, tile.rest);
}

void Lowering::Outputs(size_t level) {
  if (level == plan_->loops.size()) {
    Stores();
    return;
  }
  const Loop& loop = plan_->loops[level];
  if (loop.block == 0) {
    OverTile(plan_->tiles[loop.range], [&] { Inside(level + 1); });
    return;
  }
  const UOp* const end = kernel_.ranges[loop.range].end();
  Enter();
  const ValueId limit =
      end == nullptr ? -1 : b_.Divide(b_.Plus(Emit(end), b_.Int(loop.block - 1)), loop.block);
  const ValueId number = b_.Loop(plan_->trips(loop), How::kPlain, 1, limit);
  block_[loop.range] = {number, loop.block};
  Inside(level + 1);
  block_[loop.range] = {};
  b_.End(number);
  Leave();
}

// A range that has an end stops with the block in which that lies: what a block computes beyond is
// within the extent, and nobody's.
void Lowering::OverTile(const Tile& tile, const std::function<void()>& inside) {
  if (const Block block = block_[tile.range]; block.number >= 0)
    return OverBlock(tile, block, inside);
  if (window_.first >= 0 && tile.range == plan_->visible.range) return OverWindow(tile, inside);
  const auto bound = [&](ValueId step, const std::vector<Piece>& pieces) {
    BindTile(tile, step, step, pieces);
    inside();
    Unbind(tile.range);
  };
  const UOp* const end = kernel_.ranges[tile.range].end();
  if (tile.trips > 0) {
    Enter();
    if (tile.trips == 1 && end == nullptr) {
      bound(b_.Int(0), tile.main);
    } else {
      const ValueId limit =
          end == nullptr ? -1 : b_.Divide(b_.Plus(Emit(end), b_.Int(tile.step - 1)), tile.step);
      const ValueId loop = b_.Loop(tile.trips, How::kPlain, 1, limit);
      bound(loop, tile.main);
      b_.End(loop);
    }
    Leave();
  }
  if (tile.rest.empty()) return;
  Enter();
  const ValueId whole = b_.Int(tile.trips * tile.step);
  const ValueId branch = end == nullptr ? -1 : b_.If(b_.Less(whole, Emit(end)));
  bound(b_.Int(tile.trips), tile.rest);
  if (branch >= 0) b_.EndIf(branch);
  Leave();
}

// A longer block is a whole number of the tile's; the last one may be short, and ends with the
// tile's rest.
void Lowering::OverBlock(const Tile& tile, const Block& block,
                         const std::function<void()>& inside) {
  const auto bound = [&](ValueId step, ValueId in_block, const std::vector<Piece>& pieces) {
    BindTile(tile, step, in_block, pieces);
    inside();
    Unbind(tile.range);
  };
  const int64_t steps = block.size / tile.step;
  const int64_t last = (tile.extent - 1) / block.size;
  const ValueId before = b_.Times(block.number, steps);
  if (tile.trips > 0) {
    Enter();
    const bool whole = (last + 1) * steps == tile.trips;
    if (whole && steps == 1) {
      bound(before, b_.Int(0), tile.main);
    } else {
      const ValueId limit = whole ? -1 : b_.Plus(b_.Int(tile.trips), b_.Times(before, -1));
      const ValueId loop = b_.Loop(steps, How::kPlain, 1, limit);
      bound(b_.Plus(before, loop), loop, tile.main);
      b_.End(loop);
    }
    Leave();
  }
  if (tile.rest.empty()) return;
  Enter();
  const ValueId branch = b_.If(b_.Alu(Op::kCmpEq, DType::kBool, {block.number, b_.Int(last)}));
  bound(b_.Int(tile.trips), b_.Int(tile.trips - last * steps), tile.rest);
  b_.EndIf(branch);
  Leave();
}

int Lowering::VectorRange(RangeSet ranges) const {
  for (const int r : tiled_)
    if (ranges >> r & 1)
      for (const Piece& piece : *bound_[r].pieces)
        if (piece.lanes > 1) return r;
  return -1;
}

std::vector<int> Lowering::TiledRanges(RangeSet ranges, int last) const {
  std::vector<int> out;
  for (const int r : tiled_)
    if ((ranges >> r & 1) && r != last) out.push_back(r);
  if (last >= 0 && (ranges >> last & 1)) out.push_back(last);
  return out;
}

void Lowering::OverPoints(const std::vector<int>& ranges, size_t next,
                          const std::function<void()>& body) {
  if (next == ranges.size()) {
    const ValueId here = stored_ != nullptr ? StoresHere(*stored_) : -1;
    if (here < 0) return OverLanes(ranges, body);
    Enter();
    const ValueId branch = b_.If(here);
    OverLanes(ranges, body);
    b_.EndIf(branch);
    Leave();
    return;
  }
  const int r = ranges[next];
  const auto edges_of = [&](const Piece& piece) { return bound_[r].EdgesOf(piece); };
  const int64_t in_registers = in_registers_[r];
  std::vector<Segment> segments = SegmentsOf(*bound_[r].pieces, in_registers, edges_of);
  // Results of what is in the block's memory are always computed in a loop: unrolled completely,
  // the assembler would first load the scales and biases of all of them, and spill registers.
  const bool in_steps = in_steps_[r] && (stored_ != nullptr || bound_[r].runs_in_steps);
  if (in_steps) DivideIntoSteps(segments, in_registers);
  for (const Segment& s : segments) {
    Enter();
    behind_registers_[r] = in_registers > 0 && s.first >= in_registers;
    edges_[r] = s.edges;
    ValueId local = b_.Int(s.offset), piece = b_.Int(s.first), place = b_.Int(s.place), loop = -1;
    const int64_t of_step = VectorsOfStep(s.lanes);
    const bool steps = in_steps && behind_registers_[r] && s.count > of_step;
    const ValueId step = steps ? b_.Loop(s.count / of_step) : -1;
    if (s.count > 1) {
      loop = b_.Loop(steps ? of_step : s.count, How::kUnroll);
      const ValueId number = steps ? b_.Plus(b_.Times(step, of_step), loop) : loop;
      local = b_.Plus(local, b_.Times(number, s.apart));
      place = b_.Plus(place, b_.Times(number, s.lanes));
      piece = b_.Plus(piece, number);
    }
    local_[r] = local;
    place_[r] = place;
    piece_[r] = piece;
    lanes_of_[r] = {r, -1, s.lanes, s.active};
    raw_[r] = b_.Plus(bound_[r].base, local);
    value_[r] = Clamped(r, raw_[r], s.lanes);
    OverPoints(ranges, next + 1, body);
    local_[r] = piece_[r] = place_[r] = value_[r] = raw_[r] = -1;
    lanes_of_[r] = {};
    if (loop >= 0) b_.End(loop);
    if (steps) b_.End(step);
    Leave();
  }
}

// All lanes of a vector, those that are not in use too: what they compute is nobody's, and they
// touch no buffer.
void Lowering::OverLanes(const std::vector<int>& ranges, const std::function<void()>& body) {
  const auto range =
      std::find_if(ranges.begin(), ranges.end(), [&](int r) { return lanes_of_[r].count > 1; });
  if (range == ranges.end()) {
    body();
    return;
  }
  const int r = *range;
  Enter();
  lanes_ = lanes_of_[r];
  lanes_.lane = b_.Loop(lanes_.count, How::kVector, lanes_.count);
  const ValueId first = local_[r], value = value_[r], place = place_[r];
  local_[r] = b_.Plus(first, lanes_.lane);
  place_[r] = b_.Plus(place, lanes_.lane);
  value_[r] = edges_[r].any() ? b_.Plus(value, lanes_.lane) : b_.Plus(bound_[r].base, local_[r]);
  body();
  local_[r] = first;
  place_[r] = place;
  value_[r] = value;
  b_.End(lanes_.lane);
  lanes_ = {};
  Leave();
}

ValueId Lowering::ActiveLanes(RangeSet deps) {
  if (lanes_.range < 0 || lanes_.active == lanes_.count || !(deps >> lanes_.range & 1)) return -1;
  return b_.Less(lanes_.lane, b_.Int(lanes_.active));
}

}  // namespace outboard::program
