// A program made ready to be interpreted: places of values, targets of jumps and what memories
// there are are resolved once, so that a step of a thread looks nothing up.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/program/interpret_lanes.h"
#include "compiler/program/program.h"

namespace outboard::program {

struct ProgramMemory {
  enum class Kind { kBuffer, kShared, kPrivate, kBarriers };
  Kind kind = Kind::kBuffer;
  DType dtype = DType::kVoid;
  int64_t elements = 0;
  int64_t slot = 0;                    // of a buffer
  int64_t first_byte = 0;              // in the arena of its kind
  int64_t first_element = 0;           // likewise
  bool read = false, written = false;  // of a buffer: by any instruction on its slot
};

// Small, since programs are long: most of a step's time is to fetch it.
struct ThreadStep {
  Code code = Code::kConst;
  LaneOp what;
  uint8_t source_count = 0;
  bool vector_index = false;  // of LOAD and STORE: one index for each lane
  bool masked = false;
  bool aligned = false, swizzled = false;  // of COPY
  bool visible = false;  // another thread of the block may observe it
  int32_t out = 0;       // place of the value; a LOOP's limit comes after its counter
  int32_t src[5] = {};   // places of sources; a memory's number. LANES, and what is of sm_90a:
                         // src[0] is the first of them in Plan::lane_places
  int32_t jump = 0;      // where a scope ends or its body begins
  ValueId at = -1;       // the instruction
  int64_t imm = 0;
  LaneFunction function = nullptr;  // of an ALU
};
static_assert(sizeof(ThreadStep) <= 64);

struct Plan {
  std::vector<ThreadStep>
      once;  // pure ones of constants, VARs and the thread: run by a thread once
  std::vector<ThreadStep> steps;  // all others
  std::vector<int32_t> lane_places;
  std::vector<ProgramMemory> memories;
  int64_t registers = 0;  // of a thread
  int64_t private_bytes = 0, private_elements = 0, shared_bytes = 0, shared_elements = 0;
  int64_t barriers = 0;
  bool hopper = false;  // has instructions for sm_90a
};

Plan MakePlan(const Program& program);

}  // namespace outboard::program
