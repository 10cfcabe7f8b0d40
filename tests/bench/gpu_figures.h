// Figures of kernels for GPUs that need no GPU: the tests on the PTX machine, what compiling takes,
// what NVIDIA's assembler makes of the text, how large the bundle is. Figures that only a GPU can
// show are listed as skipped, so that none looks forgotten.
#pragma once

namespace outboard::bench {

void GpuFigures();

}  // namespace outboard::bench
