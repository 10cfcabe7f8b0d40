// Renders programs as PTX text: for NVIDIA's GPUs from sm_80 on. Needs no LLVM, no GPU, no driver
// and nothing of the vendor's.
//
// A block of the program is a block of threads. No instruction carries a flag that changes the
// meaning of docs/semantics.md: divisions and roots are rounded correctly, subnormal numbers are
// kept, and a product and a sum are one instruction only where the program allows it.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "compiler/render/gpu_renderer.h"
#include "compiler/render/launch_shape.h"
#include "compiler/target.h"

namespace outboard::render {

// Returns a renderer of kernels of Form::kPtx. Threads: any number at a time.
//
// `columns_max`: blocks along a grid's first axis; tests divide grids of fewer.
// Errors: INVALID_ARGUMENT  a target of another kind, or whose `arch` is none of sm_80, sm_89,
//                           sm_90 and sm_90a
absl::StatusOr<std::unique_ptr<GpuRenderer>> MakePtxRenderer(
    Target target, int64_t columns_max = kGridColumnsMax);

}  // namespace outboard::render
