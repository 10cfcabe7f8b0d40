// An executor without a session: it is in its sandbox, has its device, and its compile process is
// warm, so that a session opens at once.
//
// Threads: one, which must stay alive: the executor ends with it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "worker/kernels/kernel_service.h"
#include "worker/process/child_output.h"
#include "worker/process/child_process.h"

namespace outboard::worker {

class SpareExecutor {
 public:
  // Replaces the one that there is. `environment` is what gives it its device; `tunes` as in
  // KernelService::StartFor.
  // Errors: UNAVAILABLE  it cannot be started
  absl::Status Start(const std::vector<std::string>& command, uint32_t device,
                     const std::vector<int>& cores, const std::vector<std::string>& environment,
                     bool tunes);
  // Ends it. Returns how it ended (ChildProcess::Stop).
  std::string Stop();

  bool running() const { return process_.running(); }
  bool has_ended() const { return process_.pid() > 0 && !running(); }
  int pid() const { return process_.pid(); }
  uint32_t device() const { return device_; }

  // Errors: UNAVAILABLE  its threads cannot be moved
  absl::Status MoveTo(uint32_t device, const std::vector<int>& cores);

  // Its parts, for the host of a session; the process last.
  std::unique_ptr<KernelService> TakeKernels() { return std::move(kernels_); }
  std::unique_ptr<ChildOutput> TakeOutput() { return std::move(output_); }
  ChildProcess TakeProcess() { return std::exchange(process_, ChildProcess()); }

 private:
  ChildProcess process_;
  uint32_t device_ = 0;  // whose cores it uses
  std::unique_ptr<ChildOutput> output_;
  std::unique_ptr<KernelService> kernels_;
};

}  // namespace outboard::worker
