// Figures of single kernels, as the schedule makes them of tensor graphs, against the hand-written
// libraries or loops that do the same. Each is a ratio of speeds (above 1: ours is faster): the
// median over rounds in which both are run on the same threads.
#pragma once

namespace outboard::bench {

// matmul_fp32_N_vs_openblas_nobeam for N in 512 .. 4096.
void MatMulFigures();
// matmul_bf16_N_vs_onednn for the same.
void MatMulBf16Figures();
// For the same products, with BEAM=4 and a minute at most each: beam_matmul_N_s, how long the
// search took; beam_matmul_N_gain, over the heuristic's Opts; matmul_fp32_N_vs_openblas with what
// it found.
void BeamFigures();
// stream_ratio_scale, _add and _sum over arrays of 256 MB.
void StreamFigures();
// f64_functions_vs_libm: EXP, LOG, SIN and the like, of doubles, against the C library's.
void FunctionFigures();

}  // namespace outboard::bench
