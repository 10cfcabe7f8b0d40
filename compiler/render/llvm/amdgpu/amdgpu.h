// Renders programs as objects for AMD's GPUs (gfx942: CDNA 3; gfx1100: RDNA 3), by LLVM's AMDGPU
// target. Compiled only: nothing here or elsewhere loads them. Needs no GPU and no ROCm.
//
// A block of the program is a work-group, a thread a work-item. Arithmetic is that of all targets
// (compiler/render/llvm/alu.h): divisions and roots are rounded correctly, subnormal numbers are
// kept, and a product and a sum are one instruction only where the program allows it.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "compiler/render/gpu_renderer.h"
#include "compiler/render/launch_shape.h"
#include "compiler/target.h"

namespace outboard::render {

// Returns a renderer of kernels of Form::kElfAmdgpu. Threads: one at a time.
//
// `columns_max`: work-groups along a grid's first axis; tests divide grids of fewer. `no_opt`:
// without LLVM's optimisations.
// Errors: INVALID_ARGUMENT  a target of another kind, or whose `arch` is neither gfx942 nor gfx1100
absl::StatusOr<std::unique_ptr<GpuRenderer>> MakeAmdgpuRenderer(
    Target target, int64_t columns_max = kGridColumnsMax, bool no_opt = false);

}  // namespace outboard::render
