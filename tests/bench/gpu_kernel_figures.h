// Figures of kernels as PTX: how long compiling takes, and what NVIDIA's assembler says of the text
// where it is there (scripts/setup --assembler).
#pragma once

namespace outboard::bench {

// cuda_compile_ms_p50, cuda_compile_s_gpt2_124m, cuda_launches_gpt2_124m,
// cuda_wgmma_kernels_gpt2_124m.
void GpuCompileFigures();
// ptx_assembled_ratio, ptx_spill_bytes, ptx_local_bytes, ptx_registers_most, ptx_warnings,
// ptx_wgmma_kernels, ptx_wgmma_serialised, ptx_assemble_s_gpt2_124m.
void GpuAssemblerFigures();

}  // namespace outboard::bench
