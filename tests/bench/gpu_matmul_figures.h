// Measures a large product of bf16 matrices, and a convolution, as compiled for a GPU, without one:
// on the PTX machine (tests/gpu/ptx), and by NVIDIA's assembler and disassembler where they are
// found.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "compiler/ir/uop.h"

namespace outboard::bench {

// The kernel y[m,n] = sum a[m,k] * b[k,n] over k: results and operands of one type, slots y, a, b.
struct ProductKernel {
  DType dtype = DType::kBF16;
  int64_t side = 8192, steps = 8192;
  bool a_across = false;  // stored [k][m]
  bool b_across = false;  // stored [n][k]
};
const UOp* MakeProductKernel(Graph& g, const ProductKernel& kernel);

struct GpuMatmulFigures {
  // Instructions of the main loop for each matrix instruction in it, the most of all four layouts
  // of operands; of f32, by three products of TF32. Not set: no assembler (OUTBOARD_PTXAS or
  // `ptxas` in PATH) or no disassembler (OUTBOARD_NVDISASM or `nvdisasm`).
  std::optional<double> instructions_per_hmma, instructions_per_hmma_f32;
  std::optional<int64_t> spill_bytes;  // of all of them
  // Wavefronts of an access to shared memory: 1 is none that waits for a bank.
  double bank_ways = 0;
  // Sectors of 32 bytes that are read and written, over the least for blocks of this size: each
  // block's rows and columns once, and each result once.
  double sectors_ratio = 0;
  double compile_ms = 0;  // from the kernel to PTX
  // Both of a convolution of 3 x 3 with zeros around, channels last; the least has each block's
  // windows once, borders included.
  double conv_sectors_ratio = 0;
  double conv_bank_ways = 0;
};

// Errors: what compiling or the machine reports, wrong results, too.
absl::StatusOr<GpuMatmulFigures> MeasureGpuMatmul();

}  // namespace outboard::bench
