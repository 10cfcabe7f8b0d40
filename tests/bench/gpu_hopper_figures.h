// Measures products by warpgroups (compiler/program/hopper) as NVIDIA's assembler and disassembler
// see them, where these are found, and on the PTX machine, which is always there.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "compiler/ir/dtype.h"

namespace outboard::bench {

struct GpuHopperFigures {
  // Not set: no assembler (OUTBOARD_PTXAS or `ptxas` in PATH).
  std::optional<int64_t> spill_bytes;
  std::optional<int64_t> serialised;  // products that the assembler says it runs one by one
  std::optional<int64_t> ignored;     // products of which it says it leaves an instruction out
  // Instructions of the main loop for each HGMMA, the most of all layouts and tiles. Not set: no
  // disassembler either (OUTBOARD_NVDISASM or `nvdisasm` in PATH).
  std::optional<double> instructions_per_hgmma;
  // The same of f32 by three products, whose operand is taken apart and whose sums are added in f32
  // besides.
  std::optional<double> instructions_per_hgmma_f32;
  // The same where that operand is stored across k, and is read number by number.
  std::optional<double> instructions_per_hgmma_f32_across;
  // The same for each QGMMA, a product of 8-bit floats, which adds its sums in f32 besides.
  std::optional<double> instructions_per_qgmma;
};

// What a product of matrices does to memory on the PTX machine, in the tile that is chosen for
// sides of 8,192.
struct ProductMemory {
  // Wavefronts of an access to shared memory by ordinary instructions: 1 is none that waits for a
  // bank.
  double bank_ways = 0;
  // Sectors of 32 bytes that are read and written, over the least for tiles of this size: each
  // tile's rows once, its columns once for all blocks of a cluster, and each result once.
  double sectors_ratio = 0;
};
// Errors: what compiling or the machine reports, wrong results, too.
absl::StatusOr<ProductMemory> MeasureHopperMemory(DType dtype);

// Errors: what making the programs or the tools report.
absl::StatusOr<GpuHopperFigures> MeasureGpuHopper();

}  // namespace outboard::bench
