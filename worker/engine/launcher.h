// Launches the kernels of execution plans on a device, and waits for them. Launches are queued: the
// device runs them while the engine goes on, until Wait.
//
// Threads: that of the engine.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "runtime/device.h"
#include "worker/engine/engine.h"
#include "worker/engine/plans/execution_plan.h"
#include "worker/engine/plans/kernels_in_use.h"
#include "worker/engine/launch_watch.h"
#include "worker/engine/trace.h"

namespace outboard::worker {

// What the launches of one Run work on.
struct LaunchArguments {
  std::vector<runtime::DeviceAddress> memory;  // of each of Schedule::buffers
  std::vector<int64_t> vars;                   // by slot; empty: the graph has none
};

class Launcher {
 public:
  // `watch` may be nullptr. `debug` as in CompiledEngineOptions. All outlive this.
  Launcher(runtime::Device* device, LaunchWatch* watch, int debug, EngineStats* stats)
      : device_(device), watch_(watch), debug_(debug), stats_(stats) {}

  // Launch number `i` of the plan. Timed, and so waited for, while its kernel is new, in a trace
  // and with DEBUG=2.
  absl::Status LaunchOne(const ExecutionPlan& plan, size_t i, const LaunchArguments& arguments,
                         ExecutorTrace* trace);

  // True if the device queues the whole plan faster than its kernels, and none is looked at alone.
  bool LaunchesTogether(const ExecutionPlan& plan, const ExecutorTrace* trace) const;
  // All of the plan's launches. Of an error runtime::LaunchOf says which of them it is about.
  absl::Status LaunchAll(ExecutionPlan& plan, const LaunchArguments& arguments);

  bool has_queued() const { return queued_ > 0; }  // known with a watch only
  // Until all that is queued is done. Errors: those of the launches
  absl::Status Wait();

  // For the figures of a session: the time from `start` to now is the device's; `plan` is executed.
  void AddDeviceTime(std::chrono::steady_clock::time_point start);
  void AddExecution(const ExecutionPlan& plan) {
    stats_->kernels_launched += plan.launches.size();
  }

 private:
  absl::Status TimeOne(KernelInUse& kernel, size_t i, const LaunchArguments& arguments,
                       ExecutorTrace* trace);
  // Notes a launch that nobody has waited for.
  void NoteQueued(KernelInUse& kernel);
  std::string WhatIsQueued() const;  // empty: nothing is known
  // Tells the watch if this is the status of a device that was lost in `what`. Returns it.
  absl::Status TellIfLost(absl::Status status, const std::string& what);

  runtime::Device* const device_;
  LaunchWatch* const watch_;
  const int debug_;
  EngineStats* const stats_;
  std::vector<runtime::DeviceAddress> buffers_;  // of launches; kept, as it is filled often
  std::vector<runtime::KernelLaunch> together_;  // likewise
  // Since the last wait, with a watch only.
  size_t queued_ = 0;
  double queued_us_ = 0;
  std::shared_ptr<const KernelInUse> longest_queued_;
};

}  // namespace outboard::worker
