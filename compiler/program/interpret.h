// Runs programs as a hostile device would: blocks in any order, threads of a block that overtake
// each other wherever no barrier prevents it, copies that arrive at once or as late as allowed; and
// reports races and other faults. It tests shared memory, barriers and copies on a machine without
// the device. Arithmetic is the reference interpreter's; no code is shared with the passes that
// make or print programs.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "compiler/program/program.h"

namespace outboard::program {

enum class Fault {
  kNone,
  kRace,           // two threads at one element, one of them writing, and no barrier between; two
                   // blocks; or any access where a copy may not have arrived
  kUninitialised,  // a read of private or shared memory that was never written
  kOutOfRange,     // an access outside of its memory
  kMisaligned,     // an index of a COPY or an LDMATRIX that is no multiple of what it promises
  kDivergence,     // a barrier, an MMA or an LDMATRIX that not all threads reach
  kTooLong,        // over RunOptions::steps_max
  // Of sm_90a:
  kAccumulator,   // accumulators used before their product is waited for, or with no WGFENCE since
  kMissingFence,  // a copy or product that may not see what a thread has stored
  kEndlessWait,   // nothing can end this wait
  kMisuse,        // an operand that the instruction gives no meaning
};
std::string_view Name(Fault fault);

struct RunReport {
  Fault fault = Fault::kNone;
  ValueId at = -1;      // the instruction
  std::string message;  // fault, instruction, block and thread, element
  int64_t steps = 0;    // instructions that were run, but for what is the same in every block
  bool ok() const { return fault == Fault::kNone; }
};

struct RunOptions {
  uint32_t seed = 1;                     // chooses the order; equal ones give equal runs
  int64_t steps_max = int64_t{1} << 32;  // instructions, of all threads together
};

// Runs all blocks over `buffers`, indexed by slot and changed in place; `vars` is indexed by VAR
// slot. Finds races in any order of threads, unless the actions of a thread depend on the race. The
// types of the program must be legal (spec.h); its barriers need not be, and are reported as
// Fault::kDivergence. Stops at the first fault.
RunReport Interpret(const Program& program, std::span<std::string> buffers,
                    std::span<const int64_t> vars, const RunOptions& options = {});

}  // namespace outboard::program
