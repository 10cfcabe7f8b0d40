// Chooses Opts for a kernel whose work is one sum of products of bf16, if the processor has
// instructions for it (cpu_matrix_unit.h).
#pragma once

#include <optional>
#include <vector>

#include "compiler/kernel/loop_nest.h"
#include "compiler/optimize/loop_plan.h"
#include "compiler/optimize/opt.h"

namespace outboard::codegen {

// Returns nullopt if the processor has no tiles, the kernel has another form, or it is too small to
// gain. AVX512-BF16 vectors are left to the search: a Sapphire Rapids computes their sums at half
// the rate of fused multiply-adds in f32, beside which widening bf16 costs nothing.
std::optional<std::vector<Opt>> CpuMatrixUnitOpts(const LoopNest& kernel, const Target& target);

}  // namespace outboard::codegen
