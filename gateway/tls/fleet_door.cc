#include "gateway/tls/fleet_door.h"

#include <utility>

namespace outboard::gateway {

namespace {

constexpr size_t kGoodAddressesMax = 4096;  // a fleet has fewer; then they are learnt again

}  // namespace

bool FleetDoor::Admit(std::string_view secret, std::string_view peer,
                      std::function<void(absl::Status)> refuse) {
  const AddressKey address = AddressKeyOfPeer(peer);
  const auto now = WrongKeys::Clock::now();
  bool may_ask = wrong_.MayAsk(address, now);
  if (!may_ask) {
    std::lock_guard lock(mutex_);
    may_ask = good_.contains(address);
  }
  if (!may_ask) {
    refuse(absl::UnavailableError(
        "too many wrong fleet secrets came from this address; try again in some seconds"));
    return false;
  }
  const absl::Status status = check_(secret);
  if (status.ok()) {
    std::lock_guard lock(mutex_);
    if (good_.size() >= kGoodAddressesMax) good_.clear();
    good_.insert(address);
    return true;
  }
  const auto delay = wrong_.Delay(address, now);
  if (!delay.has_value()) {
    refuse(status);
    return false;
  }
  answers_.After(*delay, [this, address, status, refuse = std::move(refuse)] {
    wrong_.Answered(address);
    refuse(status);
  });
  return false;
}

}  // namespace outboard::gateway
