// Where an engine gets objects for kernels: a compile box (compile_box.h), or the compiler in this
// process (in_process_compiler.h: tests and benchmarks).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/compiled_kernel.h"
#include "runtime/device.h"

namespace outboard::worker {

// The properties of a device that affect code generation.
struct KernelTarget {
  CompiledKernel::Form form = CompiledKernel::Form::kElfX86;
  // Of devices that run blocks of threads.
  std::string device;  // its name, for errors
  bool fp64 = true;
  int64_t threads_max = 1;       // of one block
  int64_t shared_bytes_max = 0;  // of one block

  friend bool operator==(const KernelTarget&, const KernelTarget&) = default;
};

inline KernelTarget TargetOf(const runtime::DeviceProperties& properties) {
  if (properties.form == CompiledKernel::Form::kElfX86) return {};
  return {properties.form, properties.name, properties.fp64, properties.work_group_size_max,
          properties.local_memory_bytes};
}

// A kernel, how it is to be optimised, and for which device.
struct KernelSource {
  std::string encoding;             // canonical (compiler/ir/encoding.h)
  std::optional<std::string> opts;  // codegen::OptsToString; nullopt: what the heuristic chooses
  KernelTarget target;
};

class KernelCompiler {
 public:
  virtual ~KernelCompiler() = default;
  // Results in the order of `kernels`; one kernel's failure is its own. INVALID_ARGUMENT for Opts
  // that are not legal for it.
  virtual std::vector<absl::StatusOr<CompiledKernel>> Compile(
      std::span<const KernelSource> kernels) = 0;
};

}  // namespace outboard::worker
