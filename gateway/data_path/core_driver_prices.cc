// The part of CoreDriver that knows the price file: which class a device is of, what that costs, and
// whether a device reaches what its class promises; and what operators see of all.
#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "gateway/data_path/core_driver.h"
#include "gateway/data_path/core_driver_entries.h"
#include "gateway/prices/price_list.h"
#include "proto/cloud.pb.h"
#include "proto/fleet.pb.h"

namespace outboard::gateway {

FleetView CoreDriver::Look() const {
  std::lock_guard lock(mutex_);
  return core_.Look(host_->Now());
}

absl::Status CoreDriver::SetPrices(std::shared_ptr<const PriceList> prices) {
  std::lock_guard lock(mutex_);
  for (const std::string& name : core_.ClassesInUse()) {
    if (prices->Find(name) == nullptr)
      return absl::FailedPreconditionError(
          absl::StrCat("the class ", name, " is in use, and is not in it"));
  }
  prices_ = std::move(prices);
  PricesSet event;
  for (const PriceClass& of : prices_->classes) event.prices.push_back({of.name, of.run, of.idle});
  Tell(event);
  return absl::OkStatus();
}

std::shared_ptr<const PriceList> CoreDriver::prices() const {
  std::lock_guard lock(mutex_);
  return prices_;
}

DeviceSlot CoreDriver::SlotOf(const proto::Device& device, bool is_own) const {
  DeviceSlot slot{Printable(device.hardware_class()), device.memory_bytes(),
                  options_.price_per_hour};
  if (is_own) {
    slot.price_class = kOwnMachines;
    slot.price_per_hour = {};
    return slot;
  }
  if (prices_ == nullptr) return slot;
  const PriceClass* const of = prices_->ClassOf(slot.device_class, slot.memory_bytes);
  if (of == nullptr) return slot;
  slot.price_class = of->name;
  slot.price_per_hour = of->run;
  slot.idle_prices = of->idle;
  return slot;
}

absl::Status CoreDriver::CheckOwnJoin(TenantId owner) const {
  std::lock_guard lock(mutex_);
  const auto has = std::count_if(workers_.begin(), workers_.end(), [&](const auto& entry) {
    return entry.second->owner == owner;
  });
  if (static_cast<size_t>(has) < kOwnWorkersMax) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("this account has ", has, " machines of its own here; limit ", kOwnWorkersMax));
}

absl::StatusOr<bool> CoreDriver::CheckJoin(const proto::Register& reg) const {
  std::lock_guard lock(mutex_);
  if (prices_ == nullptr) return false;
  bool measure = false;
  for (int i = 0; i < reg.devices_size(); ++i) {
    const proto::Device& device = reg.devices(i);
    const std::string hardware = Printable(device.hardware_class());
    const PriceClass* const of = prices_->ClassOf(hardware, device.memory_bytes());
    if (of == nullptr)
      return absl::FailedPreconditionError(
          absl::StrCat("device ", i, " (", hardware, ", ", device.memory_bytes(),
                       " bytes) is of no class in the gateway's price file"));
    if (!of->rates.any()) continue;
    const DeviceRates rates{device.rates().gflops(), device.rates().memory_gb_per_s()};
    if (device.has_rates()) {
      if (const absl::Status reached = CheckRates(*of, rates); !reached.ok())
        return absl::FailedPreconditionError(
            absl::StrCat("device ", i, " falls short: ", std::string(reached.message())));
    } else if (!reg.measures()) {
      return absl::FailedPreconditionError(
          absl::StrCat("device ", i, ": the class ", of->name,
                       " promises what its devices reach, and this worker is too old to measure"));
    }
    measure |= !device.has_rates();
  }
  return measure;
}

void CoreDriver::OnJoinRefused(const std::string& name, const absl::Status& why) {
  observer_->OnWorkerRefused(Printable(name), why);
}

absl::Status CoreDriver::CheckClass(const proto::Open& open) const {
  if (open.device_class().empty() || open.device_class() == kOwnMachines)
    return absl::OkStatus();
  if (prices_ == nullptr)
    return absl::InvalidArgumentError(
        absl::StrCat("class = \"", absl::CHexEscape(open.device_class()),
                     "\": this gateway has no classes of devices; leave it out"));
  if (prices_->Find(open.device_class()) != nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("class = \"", absl::CHexEscape(open.device_class()),
                   "\": this gateway has ", prices_->Names()));
}

}  // namespace outboard::gateway
