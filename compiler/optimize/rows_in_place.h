// Kernels that store a row over the one that their reductions have read. The kernel says so itself:
// it loads a slot that it stores. What the schedule has made sure of is in
// compiler/schedule/in_place/rows.h; what has to be true of its loops is here.
#pragma once

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "compiler/kernel/loop_nest.h"
#include "compiler/optimize/loop_plan.h"

namespace outboard::codegen {

// The output ranges that number such rows (0: there is one row); nullopt for all other kernels.
std::optional<RangeSet> RowsInPlace(const LoopNest& kernel);

// Whether all of a row is read before any of it is stored: loops over rows are outside of those
// along them, of which none is divided into tasks; no copy is made of what is stored; threads that
// share a row divide its reductions and wait for each other, where they join them, in the memory
// of the block.
// Errors: INVALID_ARGUMENT  names what is not so
absl::Status CheckRowsInPlace(const LoopNest& kernel, const LoopPlan& plan);

// A row of which each thread has the same elements wherever it is read, all written out: it is
// read once, into registers, before the first reduction that needs it; with KEEP a part of it into
// the block's memory. Others, too, are read once, where registers hold all of it, but loads of what
// a kernel stores are not merged by themselves.
struct KeptRow {
  int64_t slot = 0;
  int64_t in_registers = 0, in_memory = 0;        // vectors of a thread
  int64_t lanes = 1;                              // of each of them
  size_t group = 0;                               // the first that reads it
  int range = -1;                                 // along the row, in that group
  std::vector<std::pair<const UOp*, int>> loads;  // with the range along the row of each
};
// Those that are stored over, and those of LoopPlan::kept, in the order of groups. None for plans
// without blocks of threads.
std::vector<KeptRow> KeptRowsOf(const LoopNest& kernel, const LoopPlan& plan);
// The bytes of a block's memory that hold its threads' part of the row.
int64_t BytesInMemory(const KeptRow& row, const LoopNest& kernel, const LoopPlan& plan);

}  // namespace outboard::codegen
