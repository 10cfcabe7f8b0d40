// Rows that the registers of a usual block do not keep: which buffers have them, and how many
// threads of how many blocks keep them, in registers and in the memory of their blocks.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/kernel/access_profile.h"
#include "compiler/kernel/loop_nest.h"
#include "compiler/target.h"

namespace outboard::codegen {

inline constexpr int64_t kThreadsWanted = 256;  // of a block: eight blocks fill a multiprocessor
inline constexpr int64_t kRowValuesMax = 32;    // of a row, in a thread's registers
inline constexpr int64_t kJoinBytes = 2 << 10;  // of a block's memory that is not for rows

// What may be chosen for them.
struct LongRowsMay {
  int64_t cluster_max = 1;  // how many blocks may do a task
  bool are_kept = false;    // a part of them in the memory of blocks
  bool are_aligned = false;
  bool are_odd = false;  // in vectors that lie within a row in part
};

// A row as the reduction with the most work reads it.
struct RowToKeep {
  int main = 0;       // the reduction: an index of LoopNest::groups and of bodies
  int along = 0;      // the range along the row
  int64_t lanes = 1;  // of vectors
  int64_t align = 1;  // values between the first bytes of sectors; 1: rows are not aligned
  int64_t steps = 1;  // vectors of the whole row, with what lies before an aligned one
};

// Who keeps it.
struct LongRow {
  int64_t threads = 0;       // of all blocks; 0: nobody does, it is read again
  int64_t blocks = 1;        // of a cluster
  int64_t in_registers = 0;  // vectors of a thread, where others are in memory (KEEP); 0: all are
};
LongRow ChooseLongRow(const LoopNest& kernel, const Target& target, const std::vector<Body>& bodies,
                      const RowToKeep& row, const LongRowsMay& may);

// The buffers of which `bodies[main]` reads a row along the range `along`, and of which another
// body, a reduction or what is stored, reads one of the same length: ascending, by slot.
std::vector<int64_t> SlotsReadAgain(const LoopNest& kernel, const std::vector<Body>& bodies,
                                    int main, int along);

}  // namespace outboard::codegen
