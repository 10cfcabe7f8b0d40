// Counts what kernels for a GPU do to memory, on the PTX machine (tests/gpu/ptx): no GPU is needed,
// and the figures are the same everywhere.
//
//   cuda_sectors_ratio_NAME   pieces of 32 bytes that the accesses of all warps touch, to the
//                             fewest that these values lie in if each is read and written once: of
//                             a matrix product, once for each tile of results
//   cuda_bank_ways_matmul     how often the shared memory is gone to for each phase of an access:
//                             1 where no two lanes meet in a bank
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace outboard::bench {

struct SectorFigure {
  std::string name;
  double value = 0;
};

// Errors: what the compiler or the machine reports.
absl::StatusOr<std::vector<SectorFigure>> GpuSectorFigures();

}  // namespace outboard::bench
