// Programs as OpenCL C 1.2 text, for devices that compile it themselves.
//
// What the language lacks is written out: bool, fp8, bf16 and fp16 lie in memory as integers and
// are computed with in fp32, each operation rounded to its type by integer arithmetic on bits.
// Signed arithmetic is done in unsigned types, since theirs wraps. The text must be built with
// kOpenClBuildOptions to mean what docs/semantics.md says.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "compiler/compiled_kernel.h"
#include "compiler/program/program.h"

namespace outboard::render {

// Of a device, as it says of itself.
struct OpenClDevice {
  std::string name = "OpenCL";
  bool fp64 = true;
  int64_t threads_max = 64;             // of one block
  int64_t shared_bytes_max = 32 << 10;  // of one block

  bool operator==(const OpenClDevice&) const = default;
};

inline constexpr char kOpenClBuildOptions[] =
    "-cl-std=CL1.2 -cl-fp32-correctly-rounded-divide-sqrt";

// Errors: UNIMPLEMENTED       fp64 where the device has none, vectors and matrix units: names the
//                             device and the type
//         RESOURCE_EXHAUSTED  more threads or shared memory than the device has
// Deterministic. Several texts may be built as one, if their symbols differ.
absl::StatusOr<CompiledKernel> RenderOpenClC(const program::Program& program,
                                             const std::string& symbol, const OpenClDevice& device);

}  // namespace outboard::render
