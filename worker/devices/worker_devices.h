// The devices of a worker, each of which serves one session at a time: shares of this machine's
// processor, or GPUs, of which a process has one and one process has it.
//
// Threads: any, but Measure and Describe on one.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/fleet.pb.h"
#include "runtime/devices.h"
#include "worker/devices/devices_in_service.h"

namespace outboard::worker {

struct WorkerDevicesOptions {
  std::string kind;              // a name of runtime/devices.h
  bool reference = false;        // REF=1
  int count_max = 1;             // fewer, if there are not so many GPUs
  int64_t memory_bytes_max = 0;  // of a session; 0: what its GPU has, or a share of the machine's
  uint64_t memory_bytes_reserved = 0;  // of the machine's, which is not shared
};

class WorkerDevices {
 public:
  explicit WorkerDevices(const WorkerDevicesOptions& options);

  int count() const { return count_; }
  // GPUs have memory of their own, and one process each.
  bool are_gpus() const { return !gpus_.empty(); }
  // Those that this process sees, also where fewer are served; 0: they are not GPUs.
  size_t listed_count() const { return gpus_.size(); }

  // Of a session on the device, there and on the host.
  int64_t MemoryOn(uint32_t device) const;
  int64_t host_memory_bytes() const { return host_memory_bytes_; }
  // Sessions that begin from now on share what was reserved, too. Any thread.
  void ReleaseReserved();
  // With which an executor has the device.
  std::vector<std::string> EnvironmentOf(uint32_t device) const;

  // Measures each device (device_rates.h) by `command`, one after the other; Describe has the
  // figures from then on. `cores`: those of a session's; empty: all.
  // Where `asked.test`, they pass the join test before (join_test.h), or `fault` says what failed.
  proto::Measured Measure(const proto::Measure& asked, const std::vector<std::string>& command,
                          const std::function<std::vector<int>(uint32_t device)>& cores);

  // Measures all GPUs, side by side, before there is a session: Describe has their figures from
  // then on, unless one of them could not be measured. Nothing else is measured unasked.
  void MeasureAtStart(const std::vector<std::string>& command,
                      const std::function<std::vector<int>(uint32_t device)>& cores,
                      std::chrono::milliseconds within);

  // All have passed the join test since this process started.
  bool tested() const { return tested_; }

  // Adds them, and which are out of service. `cores`: those that the sessions of a device have.
  void Describe(const std::function<std::vector<int>(uint32_t device)>& cores,
                proto::Register& entry) const;

  bool IsOut(uint32_t device) const { return in_service_.IsOut(device); }
  size_t count_out() const { return in_service_.AllOut().size(); }
  // An executor ended because of its GPU, with a session of `account` (0: as in
  // DevicesInService::Failed); logs it. Returns what the gateway is to be told, if the
  // GPU is out of service from now on.
  std::optional<proto::DeviceOut> Failed(uint32_t device, DeviceFailure failure, uint64_t account,
                                         const std::string& words);

 private:
  // One device; logs it. Errors: UNAVAILABLE, DEADLINE_EXCEEDED, FAILED_PRECONDITION, as
  // MeasureDevice.
  absl::StatusOr<proto::DeviceRates> MeasureOne(uint32_t device,
                                                const std::vector<std::string>& command,
                                                const std::vector<int>& cores,
                                                std::chrono::milliseconds within,
                                                const std::string& what) const;

  const WorkerDevicesOptions options_;
  const std::vector<runtime::ListedDevice> gpus_;
  const int count_;
  std::atomic<int64_t> host_memory_bytes_;
  std::vector<proto::DeviceRates> rates_;  // empty: not measured
  DevicesInService in_service_;
  bool tested_ = false;
};

}  // namespace outboard::worker
