// Figures of kernels for AMD's GPUs, which are compiled and run nowhere.
#pragma once

namespace outboard::bench {

// amd_objects_ratio.
void GpuAmdFigures();

}  // namespace outboard::bench
