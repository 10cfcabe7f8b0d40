// Measures a convolution of ResNet-50 and its gradients as compiled for sm_90a, by warpgroups and
// by mma.sync, without a GPU: on the PTX machine, and by NVIDIA's assembler and disassembler where
// they are found.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/ir/dtype.h"

namespace outboard::bench {

struct ConvFigure {
  std::string name;
  DType dtype = DType::kBF16;  // f32: by three products of TF32
  bool by_warpgroups = false;
  bool of_pictures = false;    // of three channels
  bool of_weights = false;     // the gradient of few numbers
  // Wavefronts of an access to shared memory, and sectors that are read and written, over the least
  // for tiles of this size: each tile's rows and columns once, borders included, and each result.
  double bank_ways = 0, sectors_ratio = 0;
  // Not set without an assembler.
  std::optional<int64_t> registers, spill_bytes;
  bool serialised = false;
  bool ignored = false;  // an instruction, by the assembler
  // Of the main loop, and of the loop that gathers for each step of 64; not set without a
  // disassembler.
  std::optional<double> instructions_per_product, instructions_of_gather;
};

// 64 channels, 3 x 3, channels last; 56 x 56 for the assembler, a small image for the machine. And
// three channels, 7 x 7, every second place, channels first, of 224 x 224. Of bf16 both ways, of
// f32 by mma.sync.
// Errors: what compiling or the machine reports.
absl::StatusOr<std::vector<ConvFigure>> MeasureGpuConvolutions();

}  // namespace outboard::bench
