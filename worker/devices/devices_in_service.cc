#include "worker/devices/devices_in_service.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace outboard::worker {

int64_t DevicesInService::CountOf(const std::vector<Event>& events, uint64_t account) {
  return std::count_if(events.begin(), events.end(),
                       [&](const Event& event) { return event.account == account; });
}

std::optional<std::string> DevicesInService::Failed(uint32_t device, DeviceFailure failure,
                                                    uint64_t account, std::string_view words,
                                                    Clock::time_point now) {
  std::lock_guard lock(mutex_);
  if (device >= devices_.size() || devices_[device].out) return std::nullopt;
  Device& failed = devices_[device];
  for (std::vector<Event>* events : {&failed.failures, &memory_faults_})
    std::erase_if(*events, [&](const Event& event) { return now - event.when > kFailureWindow; });
  const bool believed = account == 0 || CountOf(memory_faults_, account) == 0;
  if (account == 0 || CountOf(failed.failures, account) < kFailuresOfAccountMax)
    failed.failures.push_back({account, now});
  std::string why;
  if (failure == DeviceFailure::kMemoryFault && believed) {
    why = "its memory has failed";
    memory_faults_.push_back({account, now});
  } else if (failure == DeviceFailure::kNotLetGo) {
    why = "a process that was killed still has it";
  } else if (failed.failures.size() >= kFailuresMax) {
    why = absl::StrCat("it has failed ", kFailuresMax, " times within an hour");
  }
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
