#include "gateway/tls/fleet_door.h"

#include <utility>

namespace outboard::gateway {

namespace {

constexpr size_t kGoodAddressesMax = 4096;  // a fleet has fewer; then they are learnt again

}  // namespace

bool FleetDoor::Admit(std::string_view secret, std::string_view peer,
                      std::function<void(absl::Status)> refuse) {
  if (!MayAsk(peer)) {
    refuse(absl::UnavailableError(
        "too many wrong fleet secrets came from this address; try again in some seconds"));
    return false;
  }
  const absl::Status status = check_(secret);
  if (!status.ok()) {
    Refuse(peer, status, std::move(refuse));
    return false;
  }
  std::lock_guard lock(mutex_);
  if (good_.size() >= kGoodAddressesMax) good_.clear();
  good_.insert(AddressKeyOfPeer(peer));
  return true;
}

bool FleetDoor::MayAsk(std::string_view peer) {
  const AddressKey address = AddressKeyOfPeer(peer);
  if (wrong_.MayAsk(address, WrongKeys::Clock::now())) return true;
  std::lock_guard lock(mutex_);
  return good_.contains(address);
}

void FleetDoor::Refuse(std::string_view peer, const absl::Status& why,
                       std::function<void(absl::Status)> refuse) {
  const AddressKey address = AddressKeyOfPeer(peer);
  const auto delay = wrong_.Delay(address, WrongKeys::Clock::now());
  if (!delay.has_value()) return refuse(why);
  answers_.After(*delay, [this, address, why, refuse = std::move(refuse)] {
    wrong_.Answered(address);
    refuse(why);
  });
}

}  // namespace outboard::gateway
