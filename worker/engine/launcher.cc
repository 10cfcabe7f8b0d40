#include "worker/engine/launcher.h"

#include <algorithm>
#include <cstdio>
#include <optional>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "telemetry/counters.h"

namespace outboard::worker {
namespace {

// Of its launch: to the device all kernels have one name.
absl::Status OfKernel(const KernelInUse& kernel, const absl::Status& status) {
  if (status.ok()) return status;
  absl::Status named(status.code(),
                     absl::StrCat("kernel ", kernel.name, ": ", status.message()));
  status.ForEachPayload([&](absl::string_view type, const absl::Cord& payload) {
    named.SetPayload(type, payload);
  });
  return named;
}

}  // namespace

absl::Status Launcher::LaunchOne(const ExecutionPlan& plan, size_t i,
                                 const LaunchArguments& arguments, ExecutorTrace* trace) {
  const Launch& launch = plan.launches[i];
  KernelInUse& kernel = *launch.kernel;
  stats_->operations += kernel.loaded->flops();
  stats_->bytes_accessed += kernel.loaded->bytes();
  buffers_.clear();
  for (const int b : launch.buffers) buffers_.push_back(arguments.memory[b]);
  buffers_.resize(kernel.loaded->buffer_count());
  if (kernel.timed() || debug_ >= 2 || trace != nullptr)
    return TimeOne(kernel, i, arguments, trace);
  const absl::Status status = device_->Launch(*kernel.loaded, buffers_, arguments.vars);
  if (!status.ok()) {
    // A lost device was lost in a kernel that was queued before: this launch only reports it.
    const bool by_this = !has_queued() || device_->health().ok();
    return TellIfLost(by_this ? OfKernel(kernel, status) : status, WhatIsQueued());
  }
  NoteQueued(kernel);
  return absl::OkStatus();
}

absl::Status Launcher::TimeOne(KernelInUse& kernel, size_t i, const LaunchArguments& arguments,
                               ExecutorTrace* trace) {
  if (has_queued()) OB_RETURN_IF_ERROR(Wait());  // Time would, within this one's bound
  const std::string what = absl::StrCat("kernel ", kernel.name);
  const WatchedWait wait(watch_, what, LongestOf(watch_, kernel.least_us));
  const uint64_t begin_ns = trace != nullptr ? trace->Now() : 0;
  const absl::StatusOr<double> seconds = device_->Time([&] {
    return OfKernel(kernel, device_->Launch(*kernel.loaded, buffers_, arguments.vars));
  });
  if (!seconds.ok()) return TellIfLost(seconds.status(), what);
  if (trace != nullptr)
    trace->AddKernel(kernel.name, kernel.source.opts.value_or(""), begin_ns,
                     kernel.loaded->flops(), kernel.loaded->bytes());
  const double us = *seconds * 1e6;
  kernel.Ran(us);
  if (debug_ >= 2) {
    std::fprintf(stderr, "kernel %3zu %10.1f us %8.1f GFLOP/s %7.1f GB/s  %s\n", i, us,
                 static_cast<double>(kernel.loaded->flops()) / us / 1e3,
                 static_cast<double>(kernel.loaded->bytes()) / us / 1e3, kernel.name.c_str());
  }
  return absl::OkStatus();
}

bool Launcher::LaunchesTogether(const ExecutionPlan& plan, const ExecutorTrace* trace) const {
  return device_->properties().records_launches && debug_ < 2 && trace == nullptr &&
         plan.schedule.transfers.empty() &&
         std::ranges::none_of(plan.launches,
                              [](const Launch& launch) { return launch.kernel->timed(); });
}

absl::Status Launcher::LaunchAll(ExecutionPlan& plan, const LaunchArguments& arguments) {
  buffers_.clear();
  for (const Launch& launch : plan.launches) {
    const size_t first = buffers_.size();
    for (const int b : launch.buffers) buffers_.push_back(arguments.memory[b]);
    buffers_.resize(first + launch.kernel->loaded->buffer_count());
  }
  together_.clear();
  const runtime::DeviceAddress* next = buffers_.data();
  for (const Launch& launch : plan.launches) {
    const runtime::DeviceKernel& kernel = *launch.kernel->loaded;
    stats_->operations += kernel.flops();
    stats_->bytes_accessed += kernel.bytes();
    const auto count = static_cast<size_t>(kernel.buffer_count());
    together_.push_back({&kernel, {next, count}});
    next += count;
  }
  const std::string what = WhatIsQueued();
  absl::Status status = [&] {  // waits where the device has much queued
    const WatchedWait wait(has_queued() ? watch_ : nullptr, what, LongestOf(watch_, queued_us_));
    return device_->LaunchAll(together_, arguments.vars, plan.record);
  }();
  const std::optional<size_t> refused = runtime::LaunchOf(status);
  const bool is_lost = !device_->health().ok();
  const size_t all = plan.launches.size();
  const size_t queued = std::min(refused.value_or(status.ok() || is_lost ? all : 0), all);
  for (size_t i = 0; i < queued; ++i) NoteQueued(*plan.launches[i].kernel);
  if (status.ok()) return status;
  if (refused.has_value() && queued < all && (!is_lost || !has_queued()))  // as in LaunchOne
    status = OfKernel(*plan.launches[queued].kernel, status);
  return TellIfLost(std::move(status), WhatIsQueued());
}

absl::Status Launcher::Wait() {
  const std::string what = WhatIsQueued();
  const absl::Status status = [&] {
    const WatchedWait wait(has_queued() ? watch_ : nullptr, what, LongestOf(watch_, queued_us_));
    return device_->Synchronize();
  }();
  queued_ = 0;
  queued_us_ = 0;
  longest_queued_.reset();
  return TellIfLost(status, what);
}

absl::Status Launcher::TellIfLost(absl::Status status, const std::string& what) {
  if (!status.ok() && watch_ != nullptr && !what.empty() && !device_->health().ok())
    watch_->LostIn(what);
  return status;
}

void Launcher::AddDeviceTime(std::chrono::steady_clock::time_point start) {
  const auto us = static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(
                                            std::chrono::steady_clock::now() - start)
                                            .count());
  stats_->device_time_us += us;
  telemetry::Count(telemetry::Metric::kWorkerDeviceTime, us);
}

void Launcher::NoteQueued(KernelInUse& kernel) {
  kernel.Ran(0);
  if (watch_ == nullptr) return;
  if (longest_queued_ == nullptr || kernel.least_us > longest_queued_->least_us)
    longest_queued_ = kernel.shared_from_this();
  ++queued_;
  queued_us_ += kernel.least_us;
}

std::string Launcher::WhatIsQueued() const {
  if (longest_queued_ == nullptr) return "";
  if (queued_ == 1) return absl::StrCat("kernel ", longest_queued_->name);
  return absl::StrCat("one of ", queued_, " launches, the longest of which is kernel ",
                      longest_queued_->name);
}

}  // namespace outboard::worker
