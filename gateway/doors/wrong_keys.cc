#include "gateway/doors/wrong_keys.h"

#include <algorithm>

namespace outboard::gateway {

namespace {

constexpr int kLevelMax = 16;  // kWrongKeyDelayMs << 16 is far beyond kWrongKeyDelayMsMax

}  // namespace

bool WrongKeys::MayAsk(const AddressKey& address, Clock::time_point now) const {
  if (address.is_local) return true;
  std::lock_guard lock(mutex_);
  const auto at = entries_.find(address);
  return at == entries_.end() || at->second.waiting < kWrongKeysWaitingMax;
}

// The entry of an address that was wrong once more, and what that costs.
WrongKeys::Entry& WrongKeys::Raise(const AddressKey& address, Clock::time_point now,
                                   int64_t* delay_ms) {
  const auto [at, is_new] = entries_.try_emplace(address);
  Entry& entry = at->second;
  if (is_new) {
    entry.order = order_.insert(order_.end(), address);
  } else {
    order_.splice(order_.end(), order_, entry.order);
    const auto without = (now - entry.last) / std::chrono::milliseconds(kWrongKeyForgetMs);
    entry.level =
        std::max(0, entry.level - static_cast<int>(std::min<int64_t>(without, kLevelMax)));
  }
  entry.last = now;
  *delay_ms = std::min(kWrongKeyDelayMs << entry.level, kWrongKeyDelayMsMax);
  entry.level = std::min(entry.level + 1, kLevelMax);
  return entry;
}

std::optional<std::chrono::milliseconds> WrongKeys::Delay(const AddressKey& address,
                                                          Clock::time_point now) {
  std::lock_guard lock(mutex_);
  int64_t delay_ms = 0;
  Entry& entry = Raise(address, now, &delay_ms);
  const bool waits = entry.waiting < kWrongKeysWaitingMax && waiting_ < kWrongKeysWaitingInTotalMax;
  if (waits) {
    ++entry.waiting;
    ++waiting_;
  }
  MakeRoom();
  if (!waits) return std::nullopt;
  return std::chrono::milliseconds(delay_ms);
}

void WrongKeys::Answered(const AddressKey& address) {
  std::lock_guard lock(mutex_);
  const auto at = entries_.find(address);
  if (at == entries_.end() || at->second.waiting == 0) return;
  --at->second.waiting;
  --waiting_;
}

// Not those whose answers wait; there are at most kWrongKeysWaitingInTotalMax.
void WrongKeys::MakeRoom() {
  for (auto at = order_.begin(); entries_.size() > addresses_max_ && at != order_.end();) {
    const auto entry = entries_.find(*at);
    if (entry->second.waiting > 0) {
      ++at;
      continue;
    }
    entries_.erase(entry);
    at = order_.erase(at);
  }
}

size_t WrongKeys::addresses() const {
  std::lock_guard lock(mutex_);
  return entries_.size();
}

}  // namespace outboard::gateway
