#include "gateway/ledger/device_time.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace outboard::gateway {
namespace {

// Rounded up: the meter counts whole milliseconds.
int64_t MsBetween(MonoTime from, MonoTime to) {
  return (std::max<int64_t>(0, to.ns - from.ns) + 999'999) / 1'000'000;
}

}  // namespace

void DeviceTime::Begin(const LeaseId& lease, std::span<const std::string> devices, MonoTime now) {
  for (uint32_t place = 0; place < devices.size(); ++place) {
    if (const auto holder = holders_.find(devices[place]); holder != holders_.end()) {
      const auto replaced = leases_.find(holder->second);
      passed_ms_[replaced->first] = MsBetween(replaced->second.began, now);
      Close(replaced);
    }
    const LeasedDevice device{lease, place};
    leases_[device] = {devices[place], now};
    holders_[devices[place]] = device;
  }
}

void DeviceTime::Close(std::map<LeasedDevice, Lease>::iterator lease) {
  holders_.erase(lease->second.name);
  leases_.erase(lease);
}

void DeviceTime::End(const LeaseId& lease) {
  for (auto it = leases_.lower_bound({lease, 0}); it != leases_.end() && it->first.lease == lease;)
    Close(it++);
  const auto passed = passed_ms_.lower_bound({lease, 0});
  passed_ms_.erase(passed, std::find_if(passed, passed_ms_.end(), [&](const auto& entry) {
                     return entry.first.lease != lease;
                   }));
}

absl::Status DeviceTime::Check(const Charge& charge, MonoTime now) const {
  const auto name = [&] {
    return absl::StrCat("device ", charge.device.device, " of lease ", charge.device.lease.grant,
                        " of session ", charge.device.lease.session.Hex());
  };
  int64_t passed_ms = 0;
  if (const auto it = leases_.find(charge.device); it != leases_.end())
    passed_ms = MsBetween(it->second.began, now);
  else if (const auto passed = passed_ms_.find(charge.device); passed != passed_ms_.end())
    passed_ms = passed->second;
  else
    return absl::InternalError(absl::StrCat(name(), " was never leased"));
  if (charge.to_ms > passed_ms)
    return absl::InternalError(absl::StrCat(name(), " is metered for ", charge.to_ms, " ms, and ",
                                            passed_ms, " have passed"));
  return absl::OkStatus();
}

}  // namespace outboard::gateway
