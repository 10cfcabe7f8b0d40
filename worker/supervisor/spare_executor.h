// An executor without a session: it is in its sandbox, has its device, and its compile process is
// warm, so that a session opens at once.
//
// Threads: one, which must stay alive: the executor ends with it.
#pragma once

#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "worker/devices/devices_in_service.h"
#include "worker/kernels/kernel_service.h"
#include "worker/process/child_output.h"
#include "worker/process/child_process.h"

namespace outboard::worker {

class SpareExecutor {
 public:
  static constexpr double kMarginSeconds = 30;

  SpareExecutor() = default;
  // `parts` of its sandbox, how it is killed, and how long it then has to end, as `child` says.
  explicit SpareExecutor(ChildOptions child) : child_(std::move(child)) {}

  // Starts an executor in place of the present one, which is ended on a thread of its own. That end
  // is waited for only if both have the same device, since a GPU has one process at a time.
  // `environment` is what gives it its device; `tunes` as in KernelService::StartFor.
  // Errors: UNAVAILABLE  it cannot be started
  absl::Status Start(const std::vector<std::string>& command, uint32_t device,
                     const std::vector<int>& cores, const std::vector<std::string>& environment,
                     bool tunes);
  // Ends it. Returns how it ended.
  ChildEnd Stop();

  // What the end of one says of its GPU.
  struct Failure {
    uint32_t device;
    DeviceFailure failure;
    std::string words;  // for people
  };
  // Begins to end one that does not run any more, or that has not begun so long after its own bound
  // (ExecutorMainOptions::device_seconds_max): it may wait for its driver within the kernel, where
  // nothing of its own reaches it. Returns what the end of an earlier one says, once that has ended
  // or is left alone (ChildOptions::kill_patience_ms); nullopt: nothing, or not yet. Does not wait.
  std::optional<Failure> EndIfFailed(double device_seconds_max,
                                     double margin_seconds = kMarginSeconds);
  // Whether one that is being ended still has the device.
  bool IsEndingOn(uint32_t device) const;
  // Waits until none is; false: one still is after so long.
  bool AwaitEnd(uint32_t device, std::chrono::milliseconds most) const;

  bool running() const { return process_.running(); }
  // Whether it has read what it was sent first, which it does once it has its device.
  bool HasBegun() const;
  int pid() const { return process_.pid(); }
  uint32_t device() const { return device_; }

  // Errors: UNAVAILABLE  its threads cannot be moved
  absl::Status MoveTo(uint32_t device, const std::vector<int>& cores);

  // Its parts, for the host of a session; the process last.
  std::unique_ptr<KernelService> TakeKernels() { return std::move(kernels_); }
  std::unique_ptr<ChildOutput> TakeOutput() { return std::move(output_); }
  ChildProcess TakeProcess() { return std::exchange(process_, ChildProcess()); }

 private:
  // On a thread of its own, since one that does not die takes its time.
  struct Ending {
    uint32_t device = 0;
    std::string why;               // it had not begun; empty: it ended by itself, or was replaced
    std::future<ChildEnd> how;
  };
  void BeginEnding(std::string why);
  static std::optional<Failure> FailureOf(Ending ending);

  const ChildOptions child_ = {.profile = SandboxProfile::kExecutor};
  ChildProcess process_;
  std::chrono::steady_clock::time_point started_;
  uint32_t device_ = 0;  // whose cores it uses
  std::unique_ptr<ChildOutput> output_;
  std::unique_ptr<KernelService> kernels_;
  std::vector<Ending> endings_;  // whose failures are not told yet
};

}  // namespace outboard::worker
