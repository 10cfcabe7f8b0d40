// Several compile processes at once, for a search: as many candidates are compiled together as
// there are cores, each in a process of its own, so that one which crashes or does not end costs
// nothing but itself.
//
//   idle --a kernel is sent--> busy --its reply--> idle
//                               +--crash, deadline, stop--> killed; restarted when needed
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "compiler/target.h"
#include "worker/compile/kernel_compiler.h"
#include "worker/process/child_output.h"
#include "worker/process/child_process.h"
#include "worker/process/message_io.h"

namespace outboard::worker {

struct CompilePoolOptions {
  std::string program;  // as CompileProcessOptions has it
  Target target = HostTarget();
  int count = 0;                             // processes; 0: one a core
  std::chrono::milliseconds deadline{5000};  // of one kernel; a start of its process is part of it
  // If not -1: when this descriptor becomes readable, or its other side has closed, compilations in
  // flight are cancelled at once.
  int stop_fd = -1;
  std::vector<int> cores = {};  // that the processes may use; empty: the caller's
};

// Processes are started when they are first needed. Threads: one, which must stay: processes end
// with it.
class CompilePool final : public KernelCompiler {
 public:
  explicit CompilePool(CompilePoolOptions options = {});

  // Errors, besides the compiler's: RESOURCE_EXHAUSTED  the kernel brought its process down, or
  // took longer than the deadline; UNAVAILABLE  no process can be started; CANCELLED  ended by
  // stop_fd
  std::vector<absl::StatusOr<CompiledKernel>> Compile(
      std::span<const KernelSource> kernels) override;
  const Target& target() const override { return options_.target; }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr size_t kNone = static_cast<size_t>(-1);

  struct Process {
    ChildProcess child;
    size_t kernel = kNone;  // that it works on
    bool is_fresh = true;   // it was not asked before that one
    Clock::time_point due;
  };

  IoLimits LimitsOf(const Process& process) const;
  absl::Status Send(Process& process, const KernelSource& kernel);
  absl::StatusOr<CompiledKernel> Receive(Process& process);

  const CompilePoolOptions options_;
  std::unique_ptr<ChildOutput> output_;  // of all processes, which end before it
  std::vector<Process> processes_;
};

}  // namespace outboard::worker
