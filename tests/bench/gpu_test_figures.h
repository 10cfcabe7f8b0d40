// Figures of the tests that run on the PTX machine. They are run by ctest, one after the other, for
// some minutes.
#pragma once

namespace outboard::bench {

// cuda_operators_ratio, cuda_random_kernels, cuda_reports, cuda_planted_faults_found.
void GpuTestFigures();

}  // namespace outboard::bench
