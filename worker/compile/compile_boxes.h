// Several compile boxes at once, for a search: as many candidates are compiled together as there
// are cores, each in a box of its own, so that one which crashes or does not end costs nothing
// but itself.
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

struct CompileBoxesOptions {
  std::string program;  // as CompileBoxOptions has it
  Target target = HostTarget();
  int count = 0;                             // boxes; 0: one a core
  std::chrono::milliseconds deadline{5000};  // of one kernel; a start of its box is part of it
  // If not -1: when this descriptor becomes readable, or its other side has closed, compilations in
  // flight are cancelled at once.
  int stop_fd = -1;
  std::vector<int> cores = {};  // that the boxes may use; empty: the caller's
};

// Boxes are started when they are first needed. Threads: one, which must stay: boxes end with it.
class CompileBoxes final : public KernelCompiler {
 public:
  explicit CompileBoxes(CompileBoxesOptions options = {});

  // Errors, besides the compiler's: RESOURCE_EXHAUSTED  the kernel brought its box down, or took
  // longer than the deadline; UNAVAILABLE  no box can be started; CANCELLED  ended by
  // stop_fd
  std::vector<absl::StatusOr<CompiledKernel>> Compile(
      std::span<const KernelSource> kernels) override;
  const Target& target() const override { return options_.target; }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr size_t kNone = static_cast<size_t>(-1);

  struct Box {
    ChildProcess child;
    size_t kernel = kNone;  // that it works on
    Clock::time_point due;
  };

  IoLimits LimitsOf(const Box& box) const;
  absl::Status Send(Box& box, const KernelSource& kernel);
  absl::StatusOr<CompiledKernel> Receive(Box& box);

  const CompileBoxesOptions options_;
  std::unique_ptr<ChildOutput> output_;  // of all boxes, which end before it
  std::vector<Box> boxes_;
};

}  // namespace outboard::worker
