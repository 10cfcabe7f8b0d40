// Chooses Opts for kernels with panels (panel.h): rows lie in lanes, so that maxima and sums of a
// row are plain vector arithmetic, and each matrix is read element by element in place.
#pragma once

#include <vector>

#include "compiler/optimize/loop_plan.h"
#include "compiler/optimize/opt.h"

namespace outboard::codegen {

// Returns an empty list if the kernel has no panels, or none that fit.
std::vector<Opt> PanelOpts(const LoopNest& kernel, const Target& target);

// The same with an ONLINE of about `block` steps; empty if that is not possible.
std::vector<Opt> OnlineOpts(const LoopNest& kernel, const Target& target, int64_t block);

}  // namespace outboard::codegen
