// Renders programs for one kind of GPU: as PTX for NVIDIA's (compiler/render/ptx/ptx_renderer.h),
// as objects for AMD's (compiler/render/llvm/amdgpu/amdgpu.h).
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "compiler/compiled_kernel.h"
#include "compiler/program/program.h"

namespace outboard::render {

// Threads: as the function says that makes it.
class GpuRenderer {
 public:
  virtual ~GpuRenderer() = default;

  // Returns a kernel as compiled_kernel.h specifies, without its estimates. `ir`, unless null,
  // receives LLVM's IR before its passes, where there is any.
  // Errors: UNIMPLEMENTED       an operation without code for its type, or an instruction that the
  //                             GPU lacks; private memory that cannot become registers
  //         RESOURCE_EXHAUSTED  more threads or shared memory than a block may have, or more
  //                             blocks than a grid; a kernel of one copy with more parameters than
  //                             a launch
  //         OUT_OF_RANGE        more copies than a launch has parameters for
  //         INTERNAL            LLVM refused what was written
  virtual absl::StatusOr<CompiledKernel> Render(const program::Program& program,
                                                const std::string& symbol,
                                                std::string* ir = nullptr) const = 0;
};

}  // namespace outboard::render
