// The compile box: LLVM in a process of its own, with limits, since it may abort or run away on
// input it cannot handle.
//
// The box is a child of its executor: it ends with it, and is killed and replaced by it after a
// crash or a deadline. It reads requests (proto/compiler.proto) one at a time and keeps nothing of
// a session.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "compiler/target.h"
#include "worker/compile/kernel_compiler.h"
#include "worker/process/child_process.h"

namespace outboard::worker {

// main of the box: answers on descriptor kChildSocket until that is closed.
int CompileBoxMain();

struct CompileBoxOptions {
  std::string program;           // empty: "outboard-compiler" beside this program
  Target target = HostTarget();  // to compile for
  // For one kernel; each further kernel of a batch adds a fifth of it. LLVM normally takes
  // milliseconds.
  std::chrono::milliseconds deadline{20000};
};

// The executor's side. The first box is started at once, so that LLVM is warm when the first graph
// comes.
class CompileBox final : public KernelCompiler {
 public:
  explicit CompileBox(CompileBoxOptions options = {});

  // If a box crashes or misses its deadline, the kernel that caused it fails with
  // RESOURCE_EXHAUSTED, which is remembered, so that the kernel is not tried again. UNAVAILABLE if
  // no box can be started.
  std::vector<absl::StatusOr<CompiledKernel>> Compile(
      std::span<const KernelSource> kernels) override;
  const Target& target() const override { return options_.target; }

  int box_pid() const { return box_.pid(); }  // of the box that runs now; for tests

 private:
  absl::Status EnsureBox();
  std::chrono::milliseconds DeadlineOf(size_t kernels) const {
    return options_.deadline + options_.deadline * (kernels - 1) / 5;
  }
  // One request. Not OK: the box is gone, and so is every kernel of the batch.
  absl::Status Ask(std::span<const KernelSource> kernels,
                   std::vector<absl::StatusOr<CompiledKernel>>* results);

  CompileBoxOptions options_;
  ChildProcess box_;
  std::map<std::string, absl::Status> refused_;  // by encoding and Opts
};

}  // namespace outboard::worker
