// Opts for a kernel whose work is one sum of products of bf16, where the processor has instructions
// for it (tensor_core.h).
#pragma once

#include <optional>
#include <vector>

#include "compiler/codegen/kernel.h"
#include "compiler/codegen/opt.h"
#include "compiler/codegen/plan.h"

namespace outboard::codegen {

// Nothing where the processor has no tiles, the kernel is another, or too small to gain. Vectors are
// left to a search: a Sapphire Rapids does their sums at half the rate of fused multiply-adds in f32,
// and widens bf16 for nothing beside them.
std::optional<std::vector<Opt>> TensorCoreOpts(const Kernel& kernel, const Machine& machine);

}  // namespace outboard::codegen
