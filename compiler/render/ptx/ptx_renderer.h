// Renders programs as PTX text: for NVIDIA's GPUs from sm_80 on. Needs no LLVM, no GPU, no driver
// and nothing of the vendor's.
//
// A block of the program is a block of threads. No instruction carries a flag that changes the
// meaning of docs/semantics.md: divisions and roots are rounded correctly, subnormal numbers are
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

// The renderer for one kind of GPU. Threads: any number at a time.
class PtxRenderer {
 public:
  virtual ~PtxRenderer() = default;

  // Returns a kernel of Form::kPtx, as compiled_kernel.h specifies, without its estimates.
  // Errors: UNIMPLEMENTED       an operation without code for its type; fp64 where the target has
  //                             none; private memory that cannot become registers
  //         RESOURCE_EXHAUSTED  more threads or shared memory than a block may have, or more
  //                             blocks than a grid
  //         OUT_OF_RANGE        more copies than a launch has parameters for
  virtual absl::StatusOr<CompiledKernel> Render(const program::Program& program,
                                                const std::string& symbol) const = 0;
};

// `columns_max`: blocks along a grid's first axis; tests divide grids of fewer.
// Errors: INVALID_ARGUMENT  a target of another kind, or whose `arch` is none of sm_80, sm_89,
//                           sm_90 and sm_90a
absl::StatusOr<std::unique_ptr<PtxRenderer>> MakePtxRenderer(
    Target target, int64_t columns_max = kGridColumnsMax);

}  // namespace outboard::render
