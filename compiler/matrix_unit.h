// The matrix units of GPUs, by which programs and plans say on what their matrices are multiplied;
// and how many threads one of them takes.
#pragma once

#include "compiler/ir/dtype.h"
#include "compiler/target.h"

namespace outboard {

// NVIDIA's mma.sync; WMMA of AMD's RDNA 3 (gfx11), MFMA of CDNA 3 (gfx942). The values are those of
// MMA's imm (compiler/program/program.h), where 0 and 1 are halves of mma.sync's second operand.
enum class MatrixUnit { kMma = 0, kWmma = 2, kMfma = 3 };

// Threads that multiply matrices together.
constexpr int ThreadsOf(MatrixUnit unit) { return unit == MatrixUnit::kMfma ? 64 : kWarpThreads; }

// Whether one instruction of NVIDIA's units may have operands of these two types, each a type that
// they multiply: the same one, or two 8-bit floats.
constexpr bool AreMultiplied(DType a, DType b) {
  return a == b || (IsFloatOf8(a) && IsFloatOf8(b));
}

}  // namespace outboard
