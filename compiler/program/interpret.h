// Runs programs the way a hostile device would: blocks in any order, threads of a block that
// overtake each other wherever nothing holds them, copies that arrive at once or as late as they
// may; and reports what must not happen whatever the order. It is how shared memory, barriers and
// copies are tested on a machine without the device. Arithmetic is the reference's; nothing is
// shared with what makes or prints programs.
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
                   // blocks; or anybody where a copy may not have arrived
  kUninitialised,  // a read of private or shared memory that was never written
  kOutOfRange,     // an access outside of its memory
  kDivergence,     // a barrier or an MMA that not all threads come to
  kTooLong,        // over RunOptions::steps_max
};
std::string_view Name(Fault fault);

struct RunReport {
  Fault fault = Fault::kNone;
  ValueId at = -1;      // the instruction
  std::string message;  // fault, instruction, block and thread, element
  bool ok() const { return fault == Fault::kNone; }
};

struct RunOptions {
  uint32_t seed = 1;                     // chooses the order; equal ones give equal runs
  int64_t steps_max = int64_t{1} << 32;  // instructions, of all threads together
};

// Runs all blocks over `buffers`, by slot, which are changed in place; `vars` by VAR slot. Races
// are found in whatever order threads run, unless what a thread does depends on the race. The
// program need not be legal in its barriers (spec.h), which is what Fault::kDivergence is for; its
// types must be. Stops at the first fault.
RunReport Interpret(const Program& program, std::span<std::string> buffers,
                    std::span<const int64_t> vars, const RunOptions& options = {});

}  // namespace outboard::program
