// Where an engine gets objects for kernels. In an executor: from its supervisor, over a socket
// (worker/kernels/kernel_client.h), which looks into the cache of objects (object_cache.h) and asks
// a compile process (compile_process.h). In that process, and in tests and benchmarks: the compiler
// in the same process (in_process_compiler.h).
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/compiled_kernel.h"
#include "compiler/target.h"

namespace outboard::worker {

// A kernel and how it is to be optimised.
struct KernelSource {
  std::string encoding;             // canonical (compiler/ir/encoding.h)
  std::optional<std::string> opts;  // codegen::OptsToString; nullopt: what the heuristic chooses
};

class KernelCompiler {
 public:
  virtual ~KernelCompiler() = default;
  // What it compiles for.
  virtual const Target& target() const { return HostTarget(); }
  // Results in the order of `kernels`; one kernel's failure is its own. INVALID_ARGUMENT for Opts
  // that are not legal for it.
  virtual std::vector<absl::StatusOr<CompiledKernel>> Compile(
      std::span<const KernelSource> kernels) = 0;
};

}  // namespace outboard::worker
