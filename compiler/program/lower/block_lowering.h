// What a plan of blocks of threads adds to its lowering (Lowering::block_): which thread computes
// what, how threads that divide a reduction join their results, and operands in the block's memory.
//
//   block_threads.cc  numbers of threads, and what is computed and stored by which
//   block_joins.cc    divided reductions (SHARE, CLUSTER)
//   block_copies.cc   operands of a reduction's step (LOCAL)
//   block_rows.cc     rows that are copied whole (LOCAL), kept (KEEP), or begin within a sector
//
// All threads of a block run through the same loops; a range that they divide starts at a place of
// each thread's own. What lies beyond the extent is computed from the last value of the range
// instead, so that every thread gets to every barrier, and is not stored.
#pragma once

#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "compiler/kernel/affine.h"
#include "compiler/optimize/loop_plan.h"
#include "compiler/optimize/threads/apply_threads.h"
#include "compiler/optimize/threads/kept_row.h"
#include "compiler/optimize/threads/row_copy.h"
#include "compiler/optimize/threads/shifted_copy.h"
#include "compiler/program/lower/open_ranges.h"
#include "compiler/program/program.h"

namespace outboard::program {

class Lowering;
struct OpenReduction;

class BlockLowering {
 public:
  // Allocates the block's memory. `lowering` and `plan`, a plan of blocks of threads, outlive this.
  BlockLowering(Lowering& lowering, const codegen::LoopPlan& plan);

  // ---- block_threads.cc
  // The thread's place among those that divide the range.
  ValueId PlaceOfThread(int range);
  // How many values of an aligned range lie between a sector's first byte and the row's first one.
  ValueId ValuesBeforeRow(const Tile& tile);
  // The same for rows that begin within a vector: `open`, whose base is that of an unaligned tile,
  // gets the base and the place of an aligned one. Accesses whose vectors begin where those of the
  // row do have their index by that place, which is seen to be aligned.
  void OpenOddRow(const Tile& tile, OpenRange& open);
  // Values of these ranges differ between blocks or threads.
  void MarkDivided(RangeSet ranges) { divided_ |= ranges; }
  // Whether this thread stores what depends on these ranges, at this point; -1: it does.
  ValueId StoresHere(RangeSet deps);
  // Changes a load as Lowering::AdaptLoad does.
  void AdaptLoad(const UOp* node, Instruction& load, ValueId& mask);
  // Blocks of a cluster wait for each other before they end: others may still read what this one
  // has left for them.
  void LeaveCluster();

  // ---- block_joins.cc
  // Makes one result of those of the threads that divide the reduction, in each of them.
  void JoinResults(int group, const OpenReduction& sums);

  // ---- block_copies.cc
  bool CopiesFor(const OpenReduction& sums) const;
  // Copies the operands of the step that is open, and reads them from there until ForgetCopies.
  void CopiesForStep(const OpenReduction& sums);
  void ForgetCopies();
  // The whole loop of a reduction, with the next step's operands loaded ahead. Returns false where
  // that is not possible: then each step copies before it is computed.
  bool LoopWithCopiesAhead(const OpenReduction& sums);

  // ---- block_rows.cc
  // Rows that the block reads as a whole; by all of its threads.
  void CopyRows();
  // Operands of aligned rows; by all threads of the block, before a barrier that comes later.
  void CopyShifted();
  bool has_shifted_copies() const { return !shifted_copies_.empty(); }
  // Reads rows that are kept from this group on.
  void KeepRows(size_t group);
  // Of a range along a kept row: how many of its vectors are in registers, if others are not (else
  // 0); and whether these may be run in a loop.
  int64_t in_registers(int range) const { return in_registers_[static_cast<size_t>(range)]; }
  bool in_steps(int range) const { return in_steps_[static_cast<size_t>(range)]; }

 private:
  struct KeptMemory {
    ValueId own = -1, of_block = -1;  // the vectors in registers, and the others, if there are any
  };
  struct RowCopy {
    codegen::RowLayout layout;
    ValueId memory = -1;
    bool copied = false;
  };
  struct ShiftedCopy {
    const UOp* load = nullptr;
    codegen::ShiftedLayout layout;
    ValueId memory = -1;
  };

  // The bits `mask` of the thread's number in its task, moved together: those of the block in its
  // cluster are the highest.
  ValueId ThreadNumber(uint64_t mask);
  // Whether the point's vector begins below the ends of those ranges that a thread handles in one
  // iteration; -1: it does. Loops of several iterations end there by themselves.
  ValueId BelowEndsOf(RangeSet ranges);

  std::optional<codegen::Affine> ApartFrom(const codegen::Affine& row, const Tile& tile,
                                           const codegen::Affine& form) const;

  // Of the threads of a warp whose numbers differ in these bits alone.
  ValueId JoinLanes(Op op, ValueId value, uint64_t lanes);
  void JoinThroughMemory(const codegen::Joining& joining, const OpenReduction& sums,
                         const std::vector<ValueId>& totals);
  void JoinBlocks(const codegen::Joining& joining, const OpenReduction& sums,
                  const std::vector<ValueId>& totals);

  void ReadCopies(const OpenReduction& sums);
  int64_t CopiesOfThread(size_t copy) const;
  void OverCopy(size_t copy, ValueId step,
                const std::function<void(ValueId own, ValueId place)>& inside);
  ValueId PlaceInBlock(size_t copy);
  ValueId PlaceInTile(int range);

  // In a copy of rows, of what lies at `index` in the buffer. Of rows beyond the last one, too.
  ValueId PlaceInRows(const codegen::RowLayout& layout, const UOp* index);
  // The memory of the current point of a row that is kept, and its place there.
  std::pair<ValueId, ValueId> PlaceOfKept(size_t row, int range);
  ValueId LoadShifted(const ShiftedCopy& copy);

  Lowering& lowering_;
  const LoopNest& kernel_;
  const codegen::LoopPlan& plan_;
  ProgramBuilder& b_;
  OpenRanges& ranges_;
  const int64_t threads_;  // of the block
  ValueId thread_ = -1;
  ValueId rank_ = -1;  // of the block in its cluster; -1: there is none
  RangeSet divided_ = 0;
  // What is joined: the block's memory by type, and what blocks of a cluster leave for each other.
  absl::flat_hash_map<DType, ValueId> join_;
  ValueId left_ = -1;
  int64_t left_elements_ = 0;    // of it, by the reductions so far
  std::vector<ValueId> copies_;  // as in the plan
  std::vector<codegen::CopyLayout> copy_layouts_;
  std::vector<const UOp*> copied_;          // loads that are read from copies_ now
  std::vector<codegen::KeptRow> kept_rows_;
  std::vector<KeptMemory> kept_;            // of each
  std::vector<int64_t> in_registers_;       // by range
  std::vector<bool> in_steps_;              // by range
  absl::flat_hash_map<int64_t, RowCopy> row_copies_;  // by slot
  std::vector<ShiftedCopy> shifted_copies_;
};

}  // namespace outboard::program
