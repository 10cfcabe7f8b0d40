#include "worker/devices/devices_in_service.h"

#include "absl/strings/str_cat.h"

namespace outboard::worker {

std::optional<std::string> DevicesInService::Failed(uint32_t device, DeviceFailure failure,
                                                    std::string_view words,
                                                    Clock::time_point now) {
  std::lock_guard lock(mutex_);
  if (device >= devices_.size() || devices_[device].out) return std::nullopt;
  Device& failed = devices_[device];
  std::erase_if(failed.failures,
                [&](Clock::time_point then) { return now - then > kFailureWindow; });
  failed.failures.push_back(now);
  std::string why;
  if (failure == DeviceFailure::kMemoryFault)
    why = "its memory has failed";
  else if (failure == DeviceFailure::kNotLetGo)
    why = "a process that was killed still has it";
  else if (failed.failures.size() >= kFailuresMax)
    why = absl::StrCat("it has failed ", kFailuresMax, " times within an hour");
  if (why.empty()) return std::nullopt;
  failed.out = true;
  return absl::StrCat(why, ": ", std::string(words));
}

bool DevicesInService::IsOut(uint32_t device) const {
  std::lock_guard lock(mutex_);
  return device < devices_.size() && devices_[device].out;
}

std::vector<uint32_t> DevicesInService::AllOut() const {
  std::lock_guard lock(mutex_);
  std::vector<uint32_t> out;
  for (uint32_t device = 0; device < devices_.size(); ++device)
    if (devices_[device].out) out.push_back(device);
  return out;
}

}  // namespace outboard::worker
