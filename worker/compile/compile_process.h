// The compile process: LLVM in a process of its own, with limits, since it may abort or run away on
// input it cannot handle.
//
// It is a child of the supervisor and serves one executor: it ends with it, and is killed and
// replaced after a crash or a deadline. It reads requests (proto/compiler.proto) one at a time and
// keeps nothing of a session.
//
// Where its memory ends, it ends, with kExitNoMemory, and nothing is thrown: no exception may pass
// through the growth of Abseil's tables (docs/decisions/229), which the compiler uses throughout.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/sha256.h"
#include "compiler/target.h"
#include "worker/compile/kernel_compiler.h"
#include "worker/process/child_output.h"
#include "worker/process/child_process.h"

namespace outboard::worker {

// The exit code of a compile process whose memory has ended.
inline constexpr int kExitNoMemory = 78;
// And of one that had not yet read a kernel.
inline constexpr int kExitNoMemoryAtStart = 79;

// main of the process: answers on descriptor kChildSocket until that is closed.
int CompileProcessMain();

// The error of a kernel with which a compile process ended; `more`, unless it is empty, is said
// beside how.
// UNAVAILABLE  it had no memory to start in, whatever the kernel; RESOURCE_EXHAUSTED  all else
absl::Status EndOfCompiler(const ChildEnd& end, absl::string_view more = "");

// Counts the plans of a new kernel that turned out not to fit, and logs them: it is right, and may
// take many times as long as it should.
void ReportGivenUp(const CompiledKernel& kernel);

// Starts the program at `path`; empty: "outboard-compiler" beside this program. It is the file that
// was there when this process asked first, since a worker says of which build its kernels are.
// Errors: UNAVAILABLE  it cannot be started, or was written over
absl::StatusOr<ChildProcess> StartCompiler(const std::string& path, const std::vector<int>& cores,
                                           int output);

struct CompileProcessOptions {
  std::string program;           // as StartCompiler has it
  Target target = HostTarget();  // to compile for
  // For one kernel; each further kernel of a batch adds a fifth of it. LLVM normally takes
  // milliseconds.
  std::chrono::milliseconds deadline{20000};
  // If not -1: when this descriptor becomes readable, or its other side has closed, the compilation
  // in flight is given up and its process killed.
  int stop_fd = -1;
  std::vector<int> cores = {};  // that the process may use; empty: the caller's
};

// Kernels that brought a process down and are remembered; more of them, and all are forgotten.
inline constexpr size_t kRefusedKernelsMax = 4096;

// The supervisor's side. The first process is started at once, so that LLVM is warm when the first
// graph comes. Threads: one, which must stay: processes end with it.
class CompileProcess final : public KernelCompiler {
 public:
  explicit CompileProcess(CompileProcessOptions options = {});

  // If a process crashes, has no memory or misses its deadline, its kernels are compiled one by one
  // in a new one. A kernel that ends a process which has compiled nothing before it fails with
  // RESOURCE_EXHAUSTED, and so does one that takes longer than the deadline by itself; that is
  // remembered, and it is not tried again. UNAVAILABLE if no process can be started. CANCELLED if
  // stop_fd ended it.
  std::vector<absl::StatusOr<CompiledKernel>> Compile(
      std::span<const KernelSource> kernels) override;
  const Target& target() const override { return options_.target; }
  // Compiles for `target` from now on.
  void SetTarget(Target target);
  // Uses these cores from now on, also in the process that runs.
  void MoveTo(std::vector<int> cores);

  int process_pid() const { return process_.pid(); }  // of the process that runs now; for tests

 private:
  absl::Status EnsureStarted();
  std::chrono::milliseconds DeadlineOf(size_t kernels) const {
    return options_.deadline + options_.deadline * (kernels - 1) / 5;
  }
  // One request. Not OK: the process is gone, and so is every kernel of the batch.
  // DEADLINE_EXCEEDED where it was killed, RESOURCE_EXHAUSTED where it ended by itself.
  absl::Status Ask(std::span<const KernelSource> kernels,
                   std::vector<absl::StatusOr<CompiledKernel>>* results);
  // In a process that nothing else has used, unless it compiles in the one that runs.
  absl::StatusOr<CompiledKernel> CompileAlone(const KernelSource& kernel);

  CompileProcessOptions options_;
  std::unique_ptr<ChildOutput> output_;  // of one process after the other
  ChildProcess process_;
  bool is_fresh_ = false;  // the process was not asked yet
  std::map<Sha256Digest, absl::Status> refused_;  // by encoding and Opts
};

}  // namespace outboard::worker
