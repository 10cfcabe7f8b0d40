// The ranges of a kernel whose loops are open while it is lowered, and the point (a value of each)
// that what is emitted now is computed at.
//
// A range is opened plainly, with one value; or as a tile, of which a thread has several values in
// pieces. Loops over the pieces and over the lanes of a vector then give the point its value in
// the tile (Lowering::OverPoints).
#pragma once

#include <algorithm>
#include <vector>

#include "compiler/kernel/loop_nest.h"
#include "compiler/optimize/loop_plan.h"
#include "compiler/program/program.h"

namespace outboard::program {

using codegen::LoopNest;
using codegen::Piece;
using codegen::RangeSet;
using codegen::Tile;

// Lanes of a vector along a range.
struct Lanes {
  int range = -1;  // -1: none
  ValueId lane = -1;
  int count = 1, active = 1;
};

// A range, from when its loop is opened until it is closed.
struct OpenRange {
  // ---- of all that is open of it
  ValueId base = -1;  // the first value; -1: the loop is not open
  // Of the tile's blocks: the number in the range, and from the start of the longer block that is
  // open.
  ValueId step = -1, step_in_block = -1;
  int64_t tile_step = 1;                       // values from one block of the tile to the next
  const std::vector<Piece>* pieces = nullptr;  // of the tile; null: one value
  bool cut = false;  // `base` and pieces may lie beyond the extent, or before the range
  // All that a thread has of it may lie beyond the extent, but no part of it: `base` is then the
  // last of such places, and nothing is cut.
  bool beyond_as_a_whole = false;
  // What `base` would be if the tile were not aligned, and lay anywhere.
  ValueId unaligned = -1;
  const Tile* rest = nullptr;  // whose rest `pieces` are
  bool whole = false;          // `pieces` are all that a thread has of the range
  bool runs_in_steps = false;  // of a kept row, those in memory are run in a loop everywhere
  bool odd = false;            // vectors may lie within the range in part
  bool begins_before = false;  // what is cut may lie before the range, too
  // Of rows that begin within a vector: the first value's place in what the tile is aligned for, a
  // multiple of a vector.
  ValueId place = -1;

  // ---- at the point; -1 outside of the loops over points
  ValueId value = -1;              // clamped to the range where it is cut
  ValueId in_tile = -1;            // less `base`
  ValueId piece = -1;              // number of the piece
  ValueId own_number = -1;         // its number among the thread's own values
  ValueId unclamped = -1;          // value of the piece's first lane
  Tile::Edges edges;               // of the point, or of all that is open
  Lanes lanes;                     // of the piece
  bool behind_registers = false;   // of a kept row: the piece is not one of those in registers
  // At which ends of the range some lanes lie outside of it, while others do not.
  Tile::Edges in_part;

  bool is_open() const { return base >= 0; }
  bool tiled() const {
    return pieces != nullptr && !(pieces->size() == 1 && (*pieces)[0].lanes == 1);
  }
  Tile::Edges EdgesOf(const Piece& piece) const {
    if (!cut) return {};
    if (rest != nullptr) return rest->EdgesOf(piece);
    return {.before = begins_before, .beyond = true};
  }
  // How many values a thread has of it.
  int64_t extent() const {
    int64_t values = 0;
    for (const Piece& piece : *pieces) values += piece.lanes;
    return values;
  }
};

// A longer block of a range, of several of its tile's, while its loop is open.
struct LongBlock {
  ValueId number = -1;  // -1: none is open
  int64_t size = 0;     // values
};

class OpenRanges {
 public:
  // Both outlive this.
  OpenRanges(const LoopNest& kernel, ProgramBuilder& b)
      : kernel_(kernel),
        b_(b),
        ranges_(kernel.ranges.size()),
        long_blocks_(kernel.ranges.size()) {}

  OpenRange& operator[](int range) { return ranges_[static_cast<size_t>(range)]; }
  const OpenRange& operator[](int range) const { return ranges_[static_cast<size_t>(range)]; }
  LongBlock& long_block(int range) { return long_blocks_[static_cast<size_t>(range)]; }

  // ---- open and close
  void Open(int range, ValueId value);
  // The value at the point is set where the tile is a single one.
  void OpenTile(int range, const OpenRange& open);
  void Close(int range);
  // Opens `ranges` at the point with the flat index `index`; the last range varies fastest, in
  // steps of `columns`, which divide it.
  void OpenAll(const std::vector<int>& ranges, ValueId index, int64_t columns = 1);
  void CloseAll(const std::vector<int>& ranges) {
    for (const int range : ranges) Close(range);
  }
  bool AreOpen(RangeSet ranges) const;

  // ---- tiles
  // The tiled ones of `ranges`, outermost loop first; `last` comes last if it is one of them.
  std::vector<int> Tiled(RangeSet ranges, int last = -1) const;
  // Of `ranges`, the one with pieces of several lanes; -1: none.
  int VectorRange(RangeSet ranges) const;
  // The index of the point in a memory whose dimensions are these tiled ranges.
  ValueId PlaceIn(const std::vector<int>& ranges);
  // `value`, of the first of so many lanes, or the last of the range where that lies beyond, or the
  // first of it where that lies before.
  ValueId Clamped(int range, ValueId value, int lanes);
  // Whether the point lies within these ranges; -1: it does.
  ValueId WithinExtents(RangeSet ranges);

  // ---- lanes of the innermost loop
  // Opens the loop of a vector along `range`, of whose `count` lanes the first `active` are used.
  // Returns the lane.
  ValueId OpenLanes(int range, int count, int active);
  void CloseLanes();
  const Lanes& lanes() const { return lanes_; }
  // Of a piece of odd vectors, where it lies within the range as a whole, and where some lanes do
  // and others do not.
  struct Parts {
    ValueId whole = -1, in_part = -1;
  };
  Parts PartsOf(int range, const Tile::Edges& edges, int lanes);
  // Which lanes are in use, for what depends on these ranges; -1: all.
  ValueId ActiveLanes(RangeSet ranges);

 private:
  const LoopNest& kernel_;
  ProgramBuilder& b_;
  std::vector<OpenRange> ranges_;
  std::vector<LongBlock> long_blocks_;  // by range
  std::vector<int> tiled_;              // open ones that are tiled, in the order of their loops
  Lanes lanes_;
};

}  // namespace outboard::program
