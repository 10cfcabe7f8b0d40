// Measures a large product of bf16 matrices, and a convolution, as compiled for a GPU, without one:
// on the PTX machine (tests/gpu/ptx), and by NVIDIA's assembler and disassembler where they are
// found.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"

namespace outboard::bench {

struct GpuMatmulFigures {
  // Instructions of the main loop for each matrix instruction in it. Not set: no assembler
  // (OUTBOARD_PTXAS or `ptxas` in PATH) or no disassembler (OUTBOARD_NVDISASM or `nvdisasm`).
  std::optional<double> instructions_per_hmma;
  std::optional<int64_t> spill_bytes;
  // Wavefronts of an access to shared memory: 1 is none that waits for a bank.
  double bank_ways = 0;
  // Sectors of 32 bytes that are read and written, over the least for blocks of this size: each
  // block's rows and columns once, and each result once.
  double sectors_ratio = 0;
  double compile_ms = 0;  // from the kernel to PTX
  // The same of a convolution of 3 x 3 with zeros around, channels last; the least has each block's
  // windows once, borders included.
  std::optional<double> conv_instructions_per_hmma;
  double conv_sectors_ratio = 0;
  double conv_bank_ways = 0;
};

// Errors: what compiling or the machine reports, wrong results, too.
absl::StatusOr<GpuMatmulFigures> MeasureGpuMatmul();

}  // namespace outboard::bench
