// Opts for kernels with panels (panel.h): rows lie in lanes, so that maxima and sums of a row are
// plain arithmetic of vectors, and each matrix is read element by element from where it is.
#pragma once

#include <vector>

#include "compiler/codegen/opt.h"
#include "compiler/codegen/plan.h"

namespace outboard::codegen {

// Empty where the kernel has no panels, or none that fit.
std::vector<Opt> PanelOpts(const Kernel& kernel, const Machine& machine);

}  // namespace outboard::codegen
