// Runs kernels of Form::kOpenClC on the machine's first OpenCL device, if it has one: texts of
// several kernels are built as one program, since building is most of the time.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/compiled_kernel.h"
#include "tests/compiler/kernel_run.h"

namespace outboard::test {

class OpenClRunner {
 public:
  // Null if there is no device. Disables the driver's cache of binaries.
  static std::unique_ptr<OpenClRunner> Make();
  virtual ~OpenClRunner() = default;

  // How the driver compiles. Most of a test of many kernels is its optimiser's time.
  enum class Optimiser { kOn, kOff };

  // Errors: INTERNAL with the driver's message.
  virtual absl::Status Build(std::span<const CompiledKernel> kernels,
                             Optimiser optimiser) = 0;
  // Of the kernels that were built last.
  virtual absl::Status Run(const CompiledKernel& kernel, Buffers& buffers,
                           std::span<const int64_t> vars) = 0;
};

}  // namespace outboard::test
