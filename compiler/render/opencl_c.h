// Renders programs as OpenCL C 1.2 text, for devices that compile it themselves.
//
// A program of one thread a block becomes a kernel whose blocks, however many are launched, share
// its tasks; what comes before the block's number is computed once a block. Features that the
// language lacks are emulated: bool, fp8, bf16 and fp16 are stored as integers and computed in
// fp32, and each operation is rounded to its type by integer arithmetic on bits. Signed arithmetic
// is done in unsigned types, which wrap. The text must be built with kOpenClBuildOptions to mean
// what docs/semantics.md says.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "compiler/compiled_kernel.h"
#include "compiler/program/program.h"
#include "compiler/target.h"

namespace outboard::render {

inline constexpr char kOpenClBuildOptions[] =
    "-cl-std=CL1.2 -cl-fp32-correctly-rounded-divide-sqrt";

// Errors: UNIMPLEMENTED       fp64 where the device has none, matrix units, over 16 lanes: names
//                             the device and the type
//         RESOURCE_EXHAUSTED  more threads or shared memory than the device has
// Deterministic. Several texts may be concatenated and built as one if their symbols differ.
absl::StatusOr<CompiledKernel> RenderOpenClC(const program::Program& program,
                                             const std::string& symbol, const Target& device);

}  // namespace outboard::render
