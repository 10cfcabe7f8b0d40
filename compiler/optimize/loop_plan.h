// How a kernel's loops are run: which range lies in the lanes of a vector, which are tiled into
// registers, what a reduction's partial sums are, and which loops are handed out as tasks. Every
// choice here changes speed only, except that the order of a reduction's terms is fixed by it (and
// by nothing at run time).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "compiler/kernel/loop_nest.h"
#include "compiler/optimize/matrix_unit.h"
#include "compiler/target.h"

namespace outboard::codegen {

// One place in a tile: `active` consecutive values of the range starting at base + offset, in a
// vector of `lanes`.
struct Piece {
  int64_t offset = 0;
  int lanes = 1;
  int active = 1;
};

// A range in blocks: `trips` blocks of `step` values, each made of the pieces `main`; then, where
// the extent is no multiple, one block of the pieces `rest`, which starts at trips * step.
struct Tile {
  int range = 0;  // into LoopNest::ranges
  int64_t extent = 0;
  int64_t step = 1;
  int64_t trips = 0;
  std::vector<Piece> main = {Piece{}};
  std::vector<Piece> rest;

  int lanes() const;  // of the widest piece
  bool plain() const { return main.size() == 1 && main[0].lanes == 1 && rest.empty(); }
  int64_t blocks() const { return trips + (rest.empty() ? 0 : 1); }
};

struct GroupPlan {
  std::vector<Tile> loops;         // of the group's ranges, outermost first
  int partials = 1;                // running values for each result, combined in order at the end
  std::optional<TensorCore> core;  // what the group's reduction is done by, if not by plain code
};

// An output loop: over the blocks of a range's tile or, where `block` > 0, over longer blocks of so
// many values, inside of which the tile's loop runs. `block` is a multiple of the tile's step.
struct Loop {
  int range = 0;
  int64_t block = 0;
};

// A load whose elements are copied to memory of the thread's own where loops[0, level) are open.
struct Stage {
  const UOp* load = nullptr;
  size_t level = 0;
};

// A value that is computed, `tile` steps of its reduced range at a time, to memory of the thread's
// own before reductions read it (panel.h).
struct Panel {
  const UOp* value = nullptr;
  Tile tile;
};

struct LoopPlan {
  std::vector<Tile> tiles;  // by output range
  std::vector<Loop> loops;  // outermost first; one for each tile, and those over longer blocks
  int task_loops = 0;       // the first of `loops` that are handed out as tasks
  std::vector<GroupPlan> groups;  // as LoopNest::groups
  std::vector<Stage> stages;
  std::vector<Panel> panels;

  // How often a loop runs; of an inner one the most.
  int64_t trips(const Loop& loop) const;
  int64_t tasks() const;
  // How many output loops must be open for a value that depends on output ranges `deps`.
  size_t LevelOf(RangeSet deps) const;
  // The same for where a group is computed: not outside of the tasks, unless before all of them.
  size_t LevelOfGroup(const ReduceGroup& group) const;
  // The operation that has `load` as an operand; nullptr where there is none.
  const TensorCore* CoreOf(const UOp* load) const;
};

// Lanes of a vector of the widest type that the kernel reads or writes, four bytes at least. More
// would make vectors of the target that are idle as a whole, and the masks of such loads are wrong
// in LLVM 19 for AVX2: it reads all lanes.
int LanesMax(const LoopNest& kernel, const Target& target);

Tile PlainTile(int range, int64_t extent);
// `count` values at a time.
Tile ScalarTile(int range, int64_t extent, int64_t count);
// `count` vectors of `lanes` at a time. With `masked`, every piece has all the lanes, some of them
// idle; else the last piece has the smallest power of two that holds what is left.
Tile VectorTile(int range, int64_t extent, int lanes, int64_t count, bool masked);

std::string PlanToString(const LoopNest& kernel, const LoopPlan& plan);

}  // namespace outboard::codegen
