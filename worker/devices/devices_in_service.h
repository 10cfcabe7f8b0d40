// Counts how executors ended because of their devices, and decides which devices get no session any
// more. Without I/O: (event, now) in, decision out. What it knows lasts as long as the worker's
// process: whoever starts the worker again has looked at the device.
//
//   in service --a fault of its memory, or a process that keeps it--> out of service
//   in service --kFailuresMax failures within kFailureWindow--> out of service
//
// Threads: any.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace outboard::worker {

enum class DeviceFailure {
  kLost,         // the driver served the process no more: an illegal address, a failed launch
  kMemoryFault,  // ECC
  kLaunchTooLong,
  kNotThere,     // an executor could not have it
  kNotLetGo,     // the process was killed, and did not end in time: the driver still has it
};

class DevicesInService {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr int kFailuresMax = 3;
  static constexpr std::chrono::hours kFailureWindow{1};

  explicit DevicesInService(size_t devices) : devices_(devices) {}

  // Notes a failure. Returns why the device is out of service from now on, for people; nullopt if
  // it is not, or was already.
  std::optional<std::string> Failed(uint32_t device, DeviceFailure failure, std::string_view words,
                                    Clock::time_point now);

  bool IsOut(uint32_t device) const;
  std::vector<uint32_t> AllOut() const;

 private:
  struct Device {
    std::vector<Clock::time_point> failures;
    bool out = false;
  };
  mutable std::mutex mutex_;
  std::vector<Device> devices_;
};

}  // namespace outboard::worker
