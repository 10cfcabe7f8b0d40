// Prints what kernels do to a GPU's memory, as the PTX machine counts it, and what a product of
// matrices of bf16 comes to (gpu_sector_figures.h, gpu_matmul_figures.h).
#pragma once

namespace outboard::bench {

// cuda_sectors_ratio_NAME, cuda_bank_ways_NAME, ptx_instructions_per_hmma, of f32 and of
// convolutions, ptx_instructions_per_hgmma and its like.
void GpuMemoryFigures();

}  // namespace outboard::bench
