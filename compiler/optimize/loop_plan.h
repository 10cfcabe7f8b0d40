// Describes how a kernel's loops run: the range in the lanes of a vector, the ranges tiled into
// registers, the partial sums of reductions, and the loops that are split into tasks. These choices
// affect speed only, except that they fix the order of a reduction's terms (nothing at run time
// does).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "compiler/kernel/loop_nest.h"
#include "compiler/optimize/operands/cpu_matrix_unit.h"
#include "compiler/target.h"

namespace outboard::codegen {

// One piece of a tile: `active` consecutive values of the range starting at base + offset, in a
// vector of `lanes`.
struct Piece {
  int64_t offset = 0;
  int lanes = 1;
  int active = 1;
};

// The extent of a range and the most values before it that aligning it to `align` adds (see Tile).
inline int64_t AlignedSpan(int64_t extent, int64_t align, int lanes, bool odd_begin) {
  return align > 1 ? extent + align - (odd_begin ? 1 : lanes) : extent;
}

// A range in blocks: `trips` blocks of `step` values, each made of the pieces `main`; then, if the
// extent is not a multiple, one block of the pieces `rest`, which starts at trips * step.
//
// Of a range that threads divide (`threads` > 1), pieces are those of the first thread; those of
// the next one start `run` values later. Blocks may then reach beyond the extent (`cut`). With
// `align` > 1 all of it begins less than `align` values earlier, where what is read along the range
// begins a sector of memory: the first vectors may then lie before the range, and all of the range
// is in `rest`, unless blocks divide it.
//
// In an odd tile vectors need not fit the range: its extent is not a multiple of the lanes, or the
// range begins in the middle of a vector (`odd_begin`). A vector at such an end has lanes that lie
// outside of the range; nothing is computed for them.
struct Tile {
  int range = 0;  // into LoopNest::ranges
  int64_t extent = 0;
  int64_t step = 1;
  int64_t trips = 0;
  std::vector<Piece> main = {Piece{}};
  std::vector<Piece> rest;
  int64_t threads = 1;
  int64_t run = 1;                     // consecutive values of a thread
  bool cut = false, rest_cut = false;  // whether `main` and `rest` hold values beyond the extent
  int64_t align = 1;
  const UOp* aligned = nullptr;  // the index that is a multiple of `align` where a piece begins
  bool odd_begin = false;        // that index is no multiple of the lanes where the range begins

  // Whether some thread's values of this piece of `rest` lie before the range, or beyond it.
  struct Edges {
    bool before = false, beyond = false;
    bool any() const { return before || beyond; }
    bool operator==(const Edges&) const = default;
  };
  Edges EdgesOf(const Piece& piece) const;
  int lanes() const;  // of the widest piece
  // Whether threads have vectors that lie within the range in part.
  bool odd() const { return threads > 1 && lanes() > 1 && (odd_begin || extent % lanes() != 0); }
  // The extent, and what lies before it at most.
  int64_t span() const { return AlignedSpan(extent, align, lanes(), odd_begin); }
  // Of one block: those of `main`, or where there are none of these, of `rest`.
  const std::vector<Piece>& pieces() const { return trips > 0 ? main : rest; }
  bool plain() const { return main.size() == 1 && main[0].lanes == 1 && rest.empty(); }
  int64_t blocks() const { return trips + (rest.empty() ? 0 : 1); }
};

struct GroupPlan {
  std::vector<Tile> loops;         // of the group's ranges, outermost first
  int partials = 1;                // running values for each result, combined in order at the end
  std::optional<CpuMatrixUnit> core;  // the matrix unit that computes the reduction, if any
  int64_t shared_by = 1;           // threads that divide its terms among them (SHARE)
};

// A part of a thread's number: `count` threads, a power of two, that take steps of an output range,
// or (range -1) that are there for reductions alone. The highest bits are the block's in its
// cluster, if there are clusters.
struct ThreadAxis {
  int range = -1;
  int64_t count = 1;
};

// A load whose elements are copied to memory of the block, for each step of a reduction.
struct BlockCopy {
  const UOp* load = nullptr;
  size_t group = 0;
};

// A row of which threads keep what they have, each its own (KEEP): the first vectors in registers,
// the others in the block's memory.
struct KeptSlot {
  int64_t slot = 0;
  int64_t in_registers = 0;  // vectors of a thread
};

// An output loop: over the blocks of a range's tile or, if `block` > 0, over longer blocks of
// `block` values, inside of which the tile's loop runs. `block` is a multiple of the tile's step.
struct Loop {
  int range = 0;
  int64_t block = 0;
};

// A load whose elements are copied to memory of the thread's own, inside loops[0, level).
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

// A linear function of output ranges, and of numbers of the launch: constant + coefficient * value
// + ..., over a divisor.
struct RowForm {
  int64_t constant = 0;
  std::vector<std::pair<int, int64_t>> terms;  // by range, an index into LoopNest::ranges
  std::vector<std::pair<const UOp*, int64_t>> scalars;  // made of VARs, with known bounds
  int64_t divisor = 1;  // of last steps alone; below 0 quotients are rounded towards 0
  // Of visible steps: this has the value in each step that is hidden for it, and in no other.
  const UOp* comparison = nullptr;
  bool hides = false;
};

// The steps of the loop of panels that masks leave visible (visible.h).
struct VisibleSteps {
  int range = -1;              // -1: all are
  int64_t multiple = 1;        // of steps: the panels' tiles
  std::vector<RowForm> first;  // each: no step before it is visible in that row
  std::vector<RowForm> last;   // each: no step after it is
  // Values of a step that are 0 in each hidden one, else all steps are run.
  std::vector<const UOp*> guards;
};

// A loop of panels that all reductions over it run together, block by block (online.h).
struct Online {
  int range = -1;  // -1: none
  int64_t block = 0;
  std::vector<std::vector<size_t>> phases;  // groups of each pass, ascending
  // Of sums of f * exp(x - max x): the maximum, and by that the exponential.
  absl::flat_hash_map<const UOp*, const UOp*> max_of, exponential_of;
};

struct LoopPlan {
  std::vector<Tile> tiles;  // by output range
  std::vector<Loop> loops;  // outermost first; one for each tile, and those over longer blocks
  int task_loops = 0;       // number of leading `loops` that are split into tasks, or blocks
  bool blocks = false;      // tasks are blocks of threads
  std::vector<ThreadAxis> threads;  // of a block, or of a cluster of blocks; neighbours first
  int64_t cluster = 1;              // blocks that do a task together (CLUSTER)
  std::vector<GroupPlan> groups;    // as LoopNest::groups
  std::vector<Stage> stages;
  std::vector<BlockCopy> copies;
  std::vector<int64_t> row_copies;  // slots of which a block copies its rows (threads/row_copy.h)
  std::vector<const UOp*> shifted_copies;  // loads along an aligned axis (threads/shifted_copy.h)
  std::vector<KeptSlot> kept;
  std::vector<Panel> panels;
  VisibleSteps visible;
  Online online;

  // The number of iterations of a loop; the largest one for an inner loop.
  int64_t trips(const Loop& loop) const;
  int64_t tasks() const;
  int64_t task_threads() const;  // of all blocks of a cluster
  int64_t block_threads() const { return task_threads() / cluster; }
  // The threads of a task that differ in nothing that a group depends on.
  int64_t FreeThreads(const ReduceGroup& group) const;
  // The bits of a thread's number that are its place along an output range, lowest first; of what
  // makes the difference between those of FreeThreads.
  uint64_t ThreadBits(int range) const;
  uint64_t FreeBits(const ReduceGroup& group) const;
  // The number of output loops that must be open to compute a value that depends on output ranges
  // `deps`.
  size_t LevelOf(RangeSet deps) const;
  // The same for computing a group: inside the task loops, unless it is computed before all of
  // them.
  size_t LevelOfGroup(const ReduceGroup& group) const;
  // Returns the matrix-unit operation that has `load` as an operand; nullptr if there is none.
  const CpuMatrixUnit* CoreOf(const UOp* load) const;
};

// Plain loops over a kernel, one after the other.
LoopPlan PlainPlan(const LoopNest& kernel);

// Lanes of a vector of the widest type that the kernel reads or writes, four bytes at least. With
// more lanes, whole vectors of the target would be idle, and LLVM 19 compiles the masks of such
// loads wrongly for AVX2: it reads all lanes.
int LanesMax(const LoopNest& kernel, const Target& target);

Tile PlainTile(int range, int64_t extent);
// `count` values at a time.
Tile ScalarTile(int range, int64_t extent, int64_t count);
// `count` vectors of `lanes` at a time. With `masked`, every piece has all the lanes, some of them
// idle; else the last piece has the smallest power of two of lanes that holds the remaining values.
Tile VectorTile(int range, int64_t extent, int lanes, int64_t count, bool masked);
// `inner` vectors of `lanes` next to each other, as many for each of `threads` threads, all of it
// `outer` times. With `align` > 1 and `odd_begin`, see Tile.
Tile ThreadTile(int range, int64_t extent, int lanes, int64_t inner, int64_t threads, int64_t outer,
                int64_t align = 1, bool odd_begin = false);

std::string PlanToString(const LoopNest& kernel, const LoopPlan& plan);

}  // namespace outboard::codegen
