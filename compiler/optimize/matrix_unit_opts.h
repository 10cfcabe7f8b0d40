// Opts for a kernel whose work is one sum of products of bf16, where the processor has instructions
// for it (tensor_core.h).
#pragma once

#include <optional>
#include <vector>

#include "compiler/kernel/loop_nest.h"
#include "compiler/optimize/loop_plan.h"
#include "compiler/optimize/opt.h"

namespace outboard::codegen {

// Nothing where the processor has no tiles, the kernel is another, or too small to gain. Vectors
// are left to a search: a Sapphire Rapids does their sums at half the rate of fused multiply-adds
// in f32, and widens bf16 for nothing beside them.
std::optional<std::vector<Opt>> TensorCoreOpts(const LoopNest& kernel, const Target& target);

}  // namespace outboard::codegen
