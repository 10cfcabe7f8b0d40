// Opts for a kernel whose work is one sum of products of bf16, where the processor has instructions
// for it (tensor_core.h).
#pragma once

#include <optional>
#include <vector>

#include "compiler/codegen/kernel.h"
#include "compiler/codegen/opt.h"
#include "compiler/codegen/plan.h"

namespace outboard::codegen {

// Nothing where there are no such instructions, the kernel is another, or too small to gain.
std::optional<std::vector<Opt>> TensorCoreOpts(const Kernel& kernel, const Machine& machine);

}  // namespace outboard::codegen
