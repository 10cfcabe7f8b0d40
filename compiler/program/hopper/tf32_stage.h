// What threads do to a stage of f32 that is multiplied as TF32, once or three times (two_tf32.h).
//
// B's low parts lie beside B, and B itself is its high parts. A's parts are in registers; without
// parts, where it is stored across k, A itself is. The unit reads f32 along k alone: 128 bytes, 32
// steps, of each column. A B that is stored across k, in pieces of 32 columns, 32 rows of 128 bytes
// each, is therefore transposed in place, piece by piece:
//
//     before: row k, columns 0 ... 31          after: column n, steps 0 ... 31
//
// Both have the swizzle of 128 bytes. A warp transposes a piece in two halves: first the two
// quarters of 16 x 16 on its diagonal, then the two others, which change places. Each thread loads
// one square of 4 x 4, four times 16 bytes; when all have loaded, it stores the square transposed.
// Which square a thread has is chosen so that eight consecutive threads meet all banks, when they
// load and when they store.
#pragma once

#include <cstdint>

#include "compiler/program/program.h"

namespace outboard::program {

// Threads that make B's parts: two warps.
inline constexpr int64_t kPartMakers = 64;
// Registers of a thread for a stage of A: [product][4], of parts [low, high][product][4].
inline constexpr int64_t kProductsOfStage = MappedTensor::kSwizzleBytes / kWgmmaDepthBytes;
inline constexpr int64_t kStageRegisters = kProductsOfStage * kWgmmaRegistersOfA;

// A stage of an operand in shared memory.
struct StageOfF32 {
  ValueId memory = -1;
  ValueId first = -1;  // its first element
  bool along_rows = false;
};

// Turns the columns of a stage that is stored across k, and writes their low parts to the same
// places of `low`, unless it is -1. By the last two warps of the first warpgroup.
void MakePartsOfB(ProgramBuilder& b, const StageOfF32& stage, ValueId low, int64_t columns,
                  ValueId thread);

// Loads what the thread has of A's 64 rows of warpgroup `consumer` and writes it to private memory:
// [product][4], or its parts.
void LoadStageOfA(ProgramBuilder& b, const StageOfF32& stage, ValueId consumer, ValueId thread,
                  bool in_parts, ValueId registers);

}  // namespace outboard::program
