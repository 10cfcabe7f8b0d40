// Counts how executors ended because of their devices, and decides which devices get no session any
// more. Without I/O: (event, now) in, decision out. What it knows lasts as long as the worker's
// process: whoever starts the worker again has looked at the device.
//
//   in service --a fault of its memory, or a process that keeps it--> out of service
//   in service --kFailuresMax failures within kFailureWindow--> out of service
//
// What a program does may look like a failure of the device: an endless kernel, an illegal address.
// And who takes over an executor may say what he likes. So an account alone takes no device out by
// failures: kFailuresOfAccountMax of its own count. By a fault of memory it takes out one within
// kFailureWindow; another such word of it counts as a failure.
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
  static constexpr int kFailuresMax = 3, kFailuresOfAccountMax = 2;
  static constexpr std::chrono::hours kFailureWindow{1};

  explicit DevicesInService(size_t devices) : devices_(devices) {}

  // Notes a failure while `account` had the device; 0: nobody had, or all are one account's, and
  // each failure counts. Returns why the device is out of service from now on, for people;
  // nullopt if it is not, or was already.
  std::optional<std::string> Failed(uint32_t device, DeviceFailure failure, uint64_t account,
                                    std::string_view words, Clock::time_point now);

  bool IsOut(uint32_t device) const;
  std::vector<uint32_t> AllOut() const;

 private:
  struct Event {
    uint64_t account = 0;
    Clock::time_point when;
  };
  // Those within the window that are `account`'s.
  static int64_t CountOf(const std::vector<Event>& events, uint64_t account);
  struct Device {
    std::vector<Event> failures;
    bool out = false;
  };
  mutable std::mutex mutex_;
  std::vector<Device> devices_;
  std::vector<Event> memory_faults_;  // that took a device out
};

}  // namespace outboard::worker
