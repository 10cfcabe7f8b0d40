// The choice of vectors, tiles in registers, copies and tasks for a processor (heuristics.h): first
// the range to vectorise, the one that costs least over all parts of the kernel. Then, for the part
// with the most work, the register tile: how much of two output ranges (and how many vectors) is
// held in registers at once, so that loaded values are reused. An operand that is read many times,
// and is large or whose lanes are not adjacent in memory, is copied in blocks that stay in a cache.
// Last, tasks.
//
//   vector_chooser.cc   the whole; lanes, reductions, tasks
//   vector_copies.cc    copies of operands
//   vector_tile.cc      the register tile
#pragma once

#include <algorithm>
#include <vector>

#include "compiler/kernel/loop_nest.h"
#include "compiler/optimize/cost.h"
#include "compiler/optimize/limits.h"
#include "compiler/optimize/loop_cost.h"
#include "compiler/optimize/opt.h"
#include "compiler/optimize/register_tile.h"
#include "compiler/target.h"

namespace outboard::codegen {

class VectorChooser {
 public:
  VectorChooser(const LoopNest& kernel, const Target& target,
                double code_price)  // operations of a run, for one written out
      : kernel_(kernel),
        target_(target),
        costs_(target.costs),
        code_price_(code_price),
        copy_bytes_max_(static_cast<double>(
            std::min(optimize::ReusedBytesMax(target), limits::kLocalBytesMax / 2))),
        loop_cost_(kernel, target) {}

  // Returns legal Opts. Call once.
  std::vector<Opt> Run();

  // After Run. The range in the lanes of the reduction with most points; -1 where there is none, or
  // it has nothing in its lanes.
  int LanesOfMain() const;

 private:
  void ChooseTiles();

  int64_t Extent(int range) const { return kernel_.ranges[range].extent; }
  void Add(OptKind kind, int64_t axis, int64_t amount) { opts_.push_back({kind, axis, amount}); }
  // Values of a range, or vectors of the one in lanes.
  int64_t VectorsOf(int range) const {
    const int64_t lanes = range == output_lanes_ ? LanesFor(range) : 1;
    return (Extent(range) + lanes - 1) / lanes;
  }
  // Keeps `count` values, or vectors, of an output range in registers.
  void Upcast(int range, int64_t count) {
    counts_[range] = std::min(count, VectorsOf(range));
    if (counts_[range] > 1) Add(OptKind::kUpcast, range, counts_[range]);
  }
  static bool In(RangeSet set, int range) { return range >= 0 && (set >> range & 1); }
  const Body& body(size_t group) const { return loop_cost_.bodies()[group]; }
  const Body& stores() const { return loop_cost_.bodies().back(); }
  int LanesFor(int range) const { return loop_cost_.LanesFor(range); }
  double Points(RangeSet ranges) const { return loop_cost_.Points(ranges); }
  int64_t ConstantStride(const Access& access, int v) {
    return loop_cost_.ConstantStride(access, v);
  }
  int64_t WholeRows(int v) const { return loop_cost_.WholeRows(v); }

  double AccessCost(const Access& access, int v) {
    return Copied(access, v) ? loop_cost_.CopiedAccessCost(access, v)
                             : loop_cost_.AccessCost(access, v);
  }

  // ---- copies of operands

  // Copies what the main reduction unpacks, where many rows read it; false where it does not, or
  // other values have to be computed where their place is.
  bool CopyUnpacked();

  // The reduction with the most work; groups.size() where there is none.
  void FindMain();

  // Bytes of what a vector, or one value, of output ranges needs for the whole reduction.
  double ColumnBytes(const Access& access) const;

  bool PaysToCopy(const Access& access);

  // Whether the load is copied where `v` is in lanes: where what is next in memory is not what is
  // read next.
  bool Copied(const Access& access, int v);

  // Bytes of the copies for `vectors` vectors of `v`, the least that are made at once.
  double CopyBytes(int v, int64_t vectors);

  // The first range of which blocks are handed out: one that no copy depends on; -1 where there is
  // none.
  int BlockedRows(RangeSet deps) const;

  // Blocks, tasks and copies for the tile; false where nothing is to be copied.
  bool CopyOperands();

  // Whether the steps of the main reduction are so far from each other in memory that the lines
  // which they touch share a few sets of the second cache, and drive each other out: a stride of
  // 4 KiB leaves one line of that many bytes a place.
  bool IsFar(const Access& access);

  // Copies operands of rows whose steps are far apart, for a block of rows at a time; false where
  // there is none. Each line is then read once, by the copy.
  bool CopyFarRows();

  // Instructions of a body with `v` in lanes (-1: none).
  double BodyCost(const Body& b, int v);

  // A group with one of its own ranges in lanes pays for folding them, once a result.
  double GroupCost(size_t g, int v);

  int BestOwnRange(size_t g);

  void ChooseLanes();

  // ---- the register tile

  double Copies(RangeSet deps, const optimize::RegisterTile& t) {
    return t.Copies(deps, output_lanes_);
  }

  // The vectors of a tile that are in different places: steps of a few elements stay in the same
  // cache lines.
  double Streams(const Access& access, const optimize::RegisterTile& t);

  // Sets `cost`, the instructions for each result of a step of the main reduction, negative where
  // the registers do not suffice; and `code`.
  void SetCost(const Body& b, size_t nodes, int v, optimize::RegisterTile& t);

  void ChooseTile();

  // How many vectors of the stores, at most `most`.
  int64_t SideBySide(int64_t most) const;

  // Nothing to keep: a few vectors at a time, fewer where there is much to compute. fastest_ is not
  // set: every group that PlanGroup divides has its fold, which is work, so there is none.
  void PlanElementwise();

  // ---- reductions

  // `axis`: that of the group's first range.
  void PlanGroup(size_t g, int axis);

  // ---- tasks

  void ChooseTasks();

  const LoopNest& kernel_;
  const Target& target_;
  const CostTable& costs_;
  const double code_price_;  // operations of a run, for one written out
  const double copy_bytes_max_;
  optimize::LoopCost loop_cost_;
  int output_lanes_ = -1;             // the output range in lanes
  std::vector<int> group_lanes_;      // by group: its own range in lanes
  size_t main_ = 0;                   // the reduction with the most work
  std::vector<const UOp*> copyable_;  // loads of it
  RangeSet tile_rows_ = 0;            // the output ranges of the tile that are not in lanes
  std::vector<int64_t> counts_;       // by output range: values or vectors in the register tile
  optimize::RegisterTile fastest_;    // the tile that would be best if LLVM took no time
  std::vector<Opt> opts_;
};

}  // namespace outboard::codegen
