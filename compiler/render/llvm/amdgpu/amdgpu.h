// Renders programs as objects for AMD's GPUs (gfx942: CDNA 3; gfx1100: RDNA 3), by LLVM's AMDGPU
// target. Compiled only: nothing here or elsewhere loads them. Needs no GPU and no ROCm.
//
// A block of the program is a work-group, a thread a work-item. Arithmetic is that of all targets
// (compiler/render/llvm/alu.h): divisions and roots are rounded correctly, subnormal numbers are
// kept, and a product and a sum are one instruction only where the program allows it.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "compiler/compiled_kernel.h"
#include "compiler/program/program.h"
#include "compiler/render/launch_shape.h"
#include "compiler/target.h"

namespace outboard::render {

// The code generator for one kind of GPU. Threads: one at a time.
class AmdgpuRenderer {
 public:
  virtual ~AmdgpuRenderer() = default;

  // Returns a kernel of Form::kElfAmdgpu, as compiled_kernel.h specifies, without its estimates.
  // `ir`, unless null, receives the LLVM IR before LLVM's passes.
  // Errors: UNIMPLEMENTED       an operation without code for its type, or an instruction of
  //                             NVIDIA's alone; private memory that cannot become registers
  //         RESOURCE_EXHAUSTED  more threads or shared memory than a work-group may have, or more
  //                             work-groups than a grid
  //         INTERNAL            LLVM refused what was written
  virtual absl::StatusOr<CompiledKernel> Render(const program::Program& program,
                                                const std::string& symbol, bool no_opt,
                                                std::string* ir) = 0;
};

// `columns_max`: work-groups along a grid's first axis; tests divide grids of fewer.
// Errors: INVALID_ARGUMENT  a target of another kind, or whose `arch` is neither gfx942 nor gfx1100
absl::StatusOr<std::unique_ptr<AmdgpuRenderer>> MakeAmdgpuRenderer(
    Target target, int64_t columns_max = kGridColumnsMax);

}  // namespace outboard::render
