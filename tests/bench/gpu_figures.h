// Figures of kernels for GPUs that need no GPU: the tests on the PTX machine, what compiling takes,
// what NVIDIA's assembler makes of the text, how large the bundle is. gpu_groups.h has those that
// only a GPU can show.
#pragma once

namespace outboard::bench {

void GpuFigures();

}  // namespace outboard::bench
