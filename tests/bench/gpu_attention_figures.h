// Measures attention of bf16 matrices as compiled for a GPU, without one: on the PTX machine
// (tests/gpu/ptx), and by NVIDIA's assembler and disassembler where they are found.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace outboard::bench {

struct GpuAttentionFigures {
  // Of the main loop, for each matrix instruction in it, with heads of 64 and of 128: on sm_90, and
  // by warpgroups on sm_90a. Not set: no assembler or no disassembler (gpu_matmul_figures.h).
  std::optional<double> instructions_per_hmma_64, instructions_per_hmma_128;
  std::optional<double> instructions_per_hgmma_64, instructions_per_hgmma_128;
  // The same with a causal mask and heads of 64, by warpgroups: of the loop over times that it
  // leaves whole, and of the one over those that it cuts.
  std::optional<double> instructions_per_hgmma_whole, instructions_per_hgmma_cut;
  // Of each loop of gradients whose statistics are loaded, with a causal mask, by warpgroups: how
  // many instructions a thread has for each of its scores, in the order of the code. Of queries'
  // the pass for the rows' sums and the one for the results, of keys' and values' the one there is;
  // times that the mask leaves whole, and others. Empty: as above.
  struct PerScore {
    std::vector<double> queries_64, queries_128, keys_64, keys_128;
  };
  PerScore per_score;
  // The same where the rows' sums are those over columns (schedule/keys/gradient_sums.h), and
  // queries have the pass for the results alone.
  PerScore per_score_over_columns;
  std::optional<int64_t> spill_bytes, registers;  // the largest of all
  bool serialised = false;  // products by warpgroups that the assembler waits for one by one
  bool ignored = false;     // an instruction that the assembler leaves out
  // Wavefronts of an access to shared memory, the most of all kernels below: 1 is none that waits
  // for a bank. Forward and with gradients, for sm_90 and, where forward is by warpgroups, sm_90a;
  // heads of 64 and 128.
  double bank_ways = 0;
  std::string bank_ways_of;  // that kernel
  // Matrix instructions that a causal mask leaves, of those without a mask.
  double causal_part = 0;
  double compile_ms = 0;  // from the kernel to PTX, heads of 64
};

// Errors: what compiling or the machine reports.
absl::StatusOr<GpuAttentionFigures> MeasureGpuAttention();

}  // namespace outboard::bench
