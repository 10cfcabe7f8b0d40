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
  std::unique_lock lock(mutex_);
  if (stopping_) {
    lock.unlock();
    wrong_.Answered(address);
    refuse(status);
    return false;
  }
  later_.emplace(now + *delay, [this, address, status, refuse = std::move(refuse)] {
    wrong_.Answered(address);
    refuse(status);
  });
  wake_.notify_all();
  return false;
}

void FleetDoor::Answer() {
  std::unique_lock lock(mutex_);
  while (!stopping_ || !later_.empty()) {
    if (later_.empty()) {
      wake_.wait(lock);
      continue;
    }
    const auto due = later_.begin()->first;
    if (!stopping_ && WrongKeys::Clock::now() < due) {
      wake_.wait_until(lock, due);
      continue;
    }
    const std::function<void()> answer = std::move(later_.begin()->second);
    later_.erase(later_.begin());
    lock.unlock();
    answer();
    lock.lock();
  }
}

void FleetDoor::Stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  if (answers_.joinable()) answers_.join();
}

}  // namespace outboard::gateway
