// Figures of kernels as PTX: how long compiling takes, and what NVIDIA's assembler says of the text
// where it is there (scripts/setup --assembler).
#pragma once

namespace outboard::bench {

// cuda_compile_ms_p50, cuda_compile_s_gpt2_124m, cuda_launches_gpt2_124m and
// cuda_wgmma_kernels_gpt2_124m of a step in f32; with _bf16 behind the name, with products of bf16.
// Scheduled and compiled as a worker does it.
void GpuCompileFigures();
// ptx_assembled_ratio, ptx_spill_bytes, ptx_local_bytes, ptx_registers_most, ptx_warnings,
// ptx_wgmma_kernels, ptx_wgmma_serialised, ptx_assemble_s_gpt2_124m, ptx_spill_bytes_gpt2_124m.
void GpuAssemblerFigures();

}  // namespace outboard::bench
