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
  bool most = false;  // at an edge of odd rows: LiesMostlyWithin
};

// Pieces at an edge of the range are handled apart: some threads' values there lie outside of it.
// Number `split_at` begins a segment, and all pieces of one lie mostly within, or none (KeepRows).
std::vector<Segment> SegmentsOf(const OpenRange& range, int64_t split_at) {
  const std::vector<Piece>& pieces = *range.pieces;
  std::vector<Segment> out;
  int64_t place = 0;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const Piece& p = pieces[i];
    const Tile::Edges edges = range.EdgesOf(p);
    const bool most = range.odd && edges.any() && range.rest != nullptr &&
                      codegen::LiesMostlyWithin(*range.rest, p);
    place += p.lanes;
    if (!out.empty() && static_cast<int64_t>(i) != split_at) {
      Segment& last = out.back();
      if (last.count == 1) last.apart = p.offset - last.offset;
      if (last.lanes == p.lanes && last.active == p.active && last.edges == edges &&
          last.most == most && p.offset == last.offset + last.count * last.apart) {
        ++last.count;
        continue;
      }
    }
    out.push_back({static_cast<int64_t>(i), 1, p.offset, p.lanes, place - p.lanes, p.lanes,
                   p.active, edges, most});
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

void Lowering::TaskLoops(size_t level, const std::vector<ValueId>& steps) {
  if (level == steps.size()) {
    if (block_ != nullptr) {
      block_->CopyRows();
      block_->CopyShifted();
    }
    AtLevel(level);
    return;
  }
  const Loop& loop = plan_->loops[level];
  const Tile& tile = plan_->tiles[loop.range];
  if (block_ != nullptr)
    block_->MarkDivided(RangeSet{1} << tile.range);
  else
    MarkDivided(RangeSet{1} << tile.range);
  const UOp* const end = kernel_.ranges[tile.range].end();
  const auto with = [&](ValueId condition, ValueId base, const std::function<void()>& bind) {
    OpenScope();
    const ValueId branch = condition < 0 ? -1 : b_.If(condition);
    const ValueId limit = end == nullptr ? -1 : b_.If(b_.Less(base, Emit(end)));
    bind();
    TaskLoops(level + 1, steps);
    if (loop.block == 0) ranges_.Close(tile.range);
    if (limit >= 0) b_.EndIf(limit);
    if (branch >= 0) b_.EndIf(branch);
    CloseScope();
  };
  if (loop.block > 0) {
    with(-1, b_.Times(steps[level], loop.block), [&] {
      ranges_.long_block(loop.range) = {steps[level], loop.block};
    });
    ranges_.long_block(loop.range) = {};
    return;
  }
  const auto blocks = [&](ValueId condition, ValueId step, const std::vector<Piece>& pieces) {
    with(condition, b_.Times(step, tile.step), [&] { OpenTile(tile, step, step, pieces); });
  };
  const bool both = tile.trips > 0 && !tile.rest.empty();
  const ValueId trips = b_.Int(tile.trips);
  if (tile.trips > 0) blocks(both ? b_.Less(steps[level], trips) : -1, steps[level], tile.main);
  if (!tile.rest.empty())
    blocks(both ? b_.Alu(Op::kCmpEq, DType::kBool, {steps[level], trips}) : -1, trips, tile.rest);
}

void Lowering::AtLevel(size_t level) {
  MakeCopies(level);
  ReductionsAt(level);
  if (block_ != nullptr && block_->has_shifted_copies() &&
      level == static_cast<size_t>(plan_->task_loops))
    b_.Barrier();
  OutputLoops(level);
  EndCopies(level);
}

void Lowering::ReductionsAt(size_t level) {
  const bool online = plan_->online.range >= 0 && level == online_level_;
  for (size_t g = 0; g < kernel_.groups.size(); ++g) {
    if (!online) PanelsAt(level, g);
    if (level_of_group_[g] == level) Reduce(static_cast<int>(g));
  }
  if (online) return OnlineAt();
  PanelsAt(level, kernel_.groups.size());
}

void Lowering::OutputLoops(size_t level) {
  if (level == plan_->loops.size()) {
    Stores();
    return;
  }
  const Loop& loop = plan_->loops[level];
  if (loop.block == 0) {
    OverTile(plan_->tiles[loop.range], [&] { AtLevel(level + 1); });
    return;
  }
  const UOp* const end = kernel_.ranges[loop.range].end();
  OpenScope();
  const ValueId limit =
      end == nullptr ? -1 : b_.Divide(b_.Plus(Emit(end), b_.Int(loop.block - 1)), loop.block);
  const ValueId number = b_.Loop(plan_->trips(loop), How::kPlain, 1, limit);
  ranges_.long_block(loop.range) = {number, loop.block};
  AtLevel(level + 1);
  ranges_.long_block(loop.range) = {};
  b_.End(number);
  CloseScope();
}

// Of kernels without reductions: whether a thread has one run of several pieces, which lies within
// the extent or beyond it. Its elements then stay next to each other, and are accessed together.
bool Lowering::LiesApartAsAWhole(const Tile& tile, const std::vector<Piece>& pieces) const {
  return block_ != nullptr && kernel_.groups.empty() && pieces.size() > 1 && tile.threads > 1 &&
         tile.align == 1 && pieces.back().offset < tile.run && tile.extent % tile.run == 0 &&
         kernel_.ranges[tile.range].end() == nullptr;
}

void Lowering::OpenTile(const Tile& tile, ValueId step, ValueId step_in_block,
                        const std::vector<Piece>& pieces) {
  OpenRange open{.step = step,
                 .step_in_block = step_in_block,
                 .tile_step = tile.step,
                 .pieces = &pieces,
                 .rest = &pieces == &tile.rest ? &tile : nullptr,
                 .whole = tile.blocks() == 1,
                 .runs_in_steps = codegen::RunsInSteps(tile),
                 .odd = tile.odd(),
                 .begins_before = tile.align > 1};
  open.base = b_.Times(step, tile.step);
  if (tile.threads > 1)
    open.base = b_.Plus(open.base, b_.Times(block_->PlaceOfThread(tile.range), tile.run));
  open.unaligned = open.base;
  open.cut = open.rest != nullptr ? tile.rest_cut : tile.cut;
  if (open.cut && LiesApartAsAWhole(tile, pieces)) {
    open.cut = false;
    open.beyond_as_a_whole = true;
    open.base = b_.Min(open.base, b_.Int(tile.extent - tile.run));
  }
  if (tile.odd() && tile.odd_begin) {
    block_->OpenOddRow(tile, open);
  } else if (tile.align > 1) {
    open.base = b_.Plus(open.base, b_.Negated(block_->ValuesBeforeRow(tile)));
  }
  ranges_.OpenTile(tile.range, open);
}

// A range that has an end stops with the block in which that lies: what a block computes beyond is
// within the extent, and nobody's.
void Lowering::OverTile(const Tile& tile, const std::function<void()>& inside) {
  if (const LongBlock block = ranges_.long_block(tile.range); block.number >= 0)
    return OverBlock(tile, block, inside);
  if (window_.first >= 0 && tile.range == plan_->visible.range) return OverWindow(tile, inside);
  const auto with_tile = [&](ValueId step, const std::vector<Piece>& pieces) {
    OpenTile(tile, step, step, pieces);
    inside();
    ranges_.Close(tile.range);
  };
  const UOp* const end = kernel_.ranges[tile.range].end();
  if (tile.trips > 0) {
    OpenScope();
    if (tile.trips == 1 && end == nullptr) {
      with_tile(b_.Int(0), tile.main);
    } else {
      const ValueId limit =
          end == nullptr ? -1 : b_.Divide(b_.Plus(Emit(end), b_.Int(tile.step - 1)), tile.step);
      const ValueId loop = b_.Loop(tile.trips, How::kPlain, 1, limit);
      with_tile(loop, tile.main);
      b_.End(loop);
    }
    CloseScope();
  }
  if (tile.rest.empty()) return;
  OpenScope();
  const ValueId whole = b_.Int(tile.trips * tile.step);
  const ValueId branch = end == nullptr ? -1 : b_.If(b_.Less(whole, Emit(end)));
  with_tile(b_.Int(tile.trips), tile.rest);
  if (branch >= 0) b_.EndIf(branch);
  CloseScope();
}

// A longer block is a whole number of the tile's; the last one may be short, and ends with the
// tile's rest.
void Lowering::OverBlock(const Tile& tile, const LongBlock& block,
                         const std::function<void()>& inside) {
  const auto with_tile = [&](ValueId step, ValueId in_block, const std::vector<Piece>& pieces) {
    OpenTile(tile, step, in_block, pieces);
    inside();
    ranges_.Close(tile.range);
  };
  const int64_t steps = block.size / tile.step;
  const int64_t last = (tile.extent - 1) / block.size;
  const ValueId before = b_.Times(block.number, steps);
  if (tile.trips > 0) {
    OpenScope();
    const bool whole = (last + 1) * steps == tile.trips;
    if (whole && steps == 1) {
      with_tile(before, b_.Int(0), tile.main);
    } else {
      const ValueId limit = whole ? -1 : b_.Plus(b_.Int(tile.trips), b_.Times(before, -1));
      const ValueId loop = b_.Loop(steps, How::kPlain, 1, limit);
      with_tile(b_.Plus(before, loop), loop, tile.main);
      b_.End(loop);
    }
    CloseScope();
  }
  if (tile.rest.empty()) return;
  OpenScope();
  const ValueId branch = b_.If(b_.Alu(Op::kCmpEq, DType::kBool, {block.number, b_.Int(last)}));
  with_tile(b_.Int(tile.trips), b_.Int(tile.trips - last * steps), tile.rest);
  b_.EndIf(branch);
  CloseScope();
}

void Lowering::OverPoints(const std::vector<int>& ranges, size_t next,
                          const std::function<void()>& body) {
  if (next == ranges.size()) {
    const ValueId here = storing_ != nullptr ? block_->StoresHere(*storing_) : -1;
    if (here < 0) return OverLanes(ranges, body);
    OpenScope();
    const ValueId branch = b_.If(here);
    OverLanes(ranges, body);
    b_.EndIf(branch);
    CloseScope();
    return;
  }
  const int r = ranges[next];
  OpenRange& range = ranges_[r];
  const int64_t in_registers = block_ != nullptr ? block_->in_registers(r) : 0;
  std::vector<Segment> segments = SegmentsOf(range, in_registers);
  // Results of what is in the block's memory are always computed in a loop: unrolled completely,
  // the assembler would first load the scales and biases of all of them, and spill registers.
  const bool in_steps =
      block_ != nullptr && block_->in_steps(r) && (storing_ != nullptr || range.runs_in_steps);
  if (in_steps) DivideIntoSteps(segments, in_registers);
  for (const Segment& s : segments) {
    OpenScope();
    range.behind_registers = in_registers > 0 && s.first >= in_registers;
    range.edges = s.edges;
    ValueId in_tile = b_.Int(s.offset), piece = b_.Int(s.first), own = b_.Int(s.place), loop = -1;
    const int64_t of_step = VectorsOfStep(s.lanes);
    const bool steps = in_steps && range.behind_registers && s.count > of_step;
    const ValueId step = steps ? b_.Loop(s.count / of_step) : -1;
    if (s.count > 1) {
      loop = b_.Loop(steps ? of_step : s.count, How::kUnroll);
      const ValueId number = steps ? b_.Plus(b_.Times(step, of_step), loop) : loop;
      in_tile = b_.Plus(in_tile, b_.Times(number, s.apart));
      own = b_.Plus(own, b_.Times(number, s.lanes));
      piece = b_.Plus(piece, number);
    }
    range.in_tile = in_tile;
    range.own_number = own;
    range.piece = piece;
    range.lanes = {r, -1, s.lanes, s.active};
    range.unclamped = b_.Plus(range.base, in_tile);
    if (range.odd && s.edges.any()) {
      InParts(r, s.most, [&] { OverPoints(ranges, next + 1, body); });
    } else {
      range.value = ranges_.Clamped(r, range.unclamped, s.lanes);
      OverPoints(ranges, next + 1, body);
    }
    range.in_tile = range.piece = range.own_number = range.value = range.unclamped = -1;
    range.lanes = {};
    if (loop >= 0) b_.End(loop);
    if (steps) b_.End(step);
    CloseScope();
  }
}

// What lies outside of the range is computed by nobody. Few vectors lie there in part: what the
// branch of these has, number by number, most warps do not run. Where `most` vectors lie within it,
// terms that threads have are computed without a branch, so that what is stored can use them, and
// added where they are the range's.
void Lowering::InParts(int r, bool most, const std::function<void()>& inside) {
  OpenRange& range = ranges_[r];
  const Tile::Edges edges = range.edges;
  range.value = range.unclamped;
  if (sums_by_masks_ && most && !range.behind_registers) {
    range.edges = {};
    range.in_part = edges;
    inside();
  } else {
    const OpenRanges::Parts parts = ranges_.PartsOf(r, edges, range.lanes.count);
    range.edges = {};
    for (const bool in_part : {false, true}) {
      OpenScope();
      const ValueId branch = in_part ? b_.IfRarely(parts.in_part) : b_.If(parts.whole);
      if (in_part) range.in_part = edges;
      inside();
      b_.EndIf(branch);
      CloseScope();
    }
  }
  range.in_part = {};
  range.edges = edges;
}

// All lanes of a vector, those that are not in use too: what they compute is nobody's, and they
// touch no buffer.
void Lowering::OverLanes(const std::vector<int>& ranges, const std::function<void()>& body) {
  const auto range =
      std::find_if(ranges.begin(), ranges.end(), [&](int r) { return ranges_[r].lanes.count > 1; });
  if (range == ranges.end()) {
    body();
    return;
  }
  const int r = *range;
  OpenRange& in_lanes = ranges_[r];
  OpenScope();
  const ValueId lane = ranges_.OpenLanes(r, in_lanes.lanes.count, in_lanes.lanes.active);
  const ValueId in_tile = in_lanes.in_tile, value = in_lanes.value, own = in_lanes.own_number;
  in_lanes.in_tile = b_.Plus(in_tile, lane);
  in_lanes.own_number = b_.Plus(own, lane);
  in_lanes.value =
      in_lanes.edges.any() ? b_.Plus(value, lane) : b_.Plus(in_lanes.base, in_lanes.in_tile);
  body();
  in_lanes.in_tile = in_tile;
  in_lanes.own_number = own;
  in_lanes.value = value;
  ranges_.CloseLanes();
  CloseScope();
}

void Lowering::AdaptLoad(const UOp* node, Instruction& load, ValueId& mask) {
  if (block_ != nullptr) block_->AdaptLoad(node, load, mask);
}

// Of kernels without reductions: whether a thread stores at several points of these ranges, all of
// them or none. One branch around them all then lets stores be joined.
bool Lowering::OneBranchForAll(const std::vector<int>& points) const {
  bool several = false;
  for (const int r : points) {
    if (ranges_[r].cut || kernel_.ranges[r].end() != nullptr) return false;
    several = several || ranges_[r].pieces->size() > 1;
  }
  return block_ != nullptr && kernel_.groups.empty() && several;
}

// Each store at the points that it depends on, those that depend on more first: a buffer that is
// updated in place is read at the same element, so what reads it depends on all that its store
// does.
void Lowering::Stores() {
  std::vector<std::pair<std::vector<int>, std::vector<const UOp*>>> by_points;
  for (const UOp* store : kernel_.stores) {
    if (SumsPoints(store)) continue;  // whoever has all of its rows stores it
    const RangeSet deps = kernel_.DepsOf(store);
    std::vector<int> points = ranges_.Tiled(deps);
    const auto same = std::find_if(by_points.begin(), by_points.end(), [&](const auto& entry) {
      return entry.first == points &&
             (block_ == nullptr || kernel_.DepsOf(entry.second.front()) == deps);
    });
    if (same != by_points.end()) {
      same->second.push_back(store);
    } else {
      by_points.push_back({std::move(points), {store}});
    }
  }
  std::stable_sort(by_points.begin(), by_points.end(),
                   [](const auto& a, const auto& b) { return a.first.size() > b.first.size(); });
  for (const auto& [points, stores] : by_points) {
    const RangeSet deps = kernel_.DepsOf(stores.front());
    const ValueId all_here = OneBranchForAll(points) ? block_->StoresHere(deps) : -1;
    if (all_here >= 0) {
      OpenScope();
      const ValueId branch = b_.If(all_here);
      ForEachPoint(points, [&] { Store(stores); });
      b_.EndIf(branch);
      CloseScope();
      continue;
    }
    storing_ = block_ != nullptr ? &deps : nullptr;
    ForEachPoint(points, [&] { Store(stores); });
    storing_ = nullptr;
  }
}

}  // namespace outboard::program
