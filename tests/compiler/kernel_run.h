// Runs kernels in two ways: as compiled objects, and by walking the expression element by element
// with the reference's arithmetic.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/compiled_kernel.h"
#include "compiler/ir/uop.h"

namespace outboard::test {

// Buffers by slot; a slot that a kernel does not use may be empty.
using Buffers = std::vector<std::string>;

// Walks the kernel. Every load whose gate holds and every store must lie in its buffer.
// Errors: OUT_OF_RANGE  one does not
absl::Status WalkKernel(const UOp* sink, Buffers& buffers);

// A loaded object. Calls may come from several threads.
class LoadedKernel {
 public:
  static absl::StatusOr<std::unique_ptr<LoadedKernel>> Load(CompiledKernel kernel);
  ~LoadedKernel();

  const CompiledKernel& kernel() const;
  void Run(void* const* buffers, int64_t begin, int64_t end) const;
  // Every buffer lies in memory of its own, ending at a page that may not be touched; tasks are run
  // in `pieces` calls, the last first.
  void RunGuarded(Buffers& buffers, int pieces = 1) const;

 private:
  struct Impl;
  explicit LoadedKernel(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace outboard::test
