// What a wrong key costs its address: each one delays its answer, twice as long as the one before,
// and only some answers of an address may wait at a time. A guess is hopeless anyway (a key has 256
// random bits); the delay keeps a program with a wrong key, or an attacker, from making the gateway
// read its disk as fast as they can ask.
//
// Memory is bounded: the addresses that were wrong longest ago are forgotten first.
// Threads: any.
#pragma once

#include <chrono>
#include <cstddef>
#include <list>
#include <map>
#include <mutex>
#include <optional>

#include "gateway/base/limits.h"
#include "gateway/doors/address_key.h"

namespace outboard::gateway {

class WrongKeys {
 public:
  using Clock = std::chrono::steady_clock;
  explicit WrongKeys(size_t addresses_max = kWrongKeyAddressesMax)
      : addresses_max_(addresses_max) {}

  // Whether a key of this address is looked at now: not while kWrongKeysWaitingMax of its answers
  // wait. One of this machine always is, since everybody behind a proxy comes from here.
  bool MayAsk(const AddressKey& address, Clock::time_point now) const;
  // A key was wrong. Returns how long its answer waits; Answered follows. None: it does not wait,
  // since too many do, and Answered does not follow.
  std::optional<std::chrono::milliseconds> Delay(const AddressKey& address, Clock::time_point now);
  void Answered(const AddressKey& address);

  size_t addresses() const;

 private:
  struct Entry {
    int level = 0;  // the next delay is kWrongKeyDelayMs << level
    int waiting = 0;
    Clock::time_point last{};
    std::list<AddressKey>::iterator order;
  };
  Entry& Raise(const AddressKey& address, Clock::time_point now, int64_t* delay_ms);
  void MakeRoom();

  const size_t addresses_max_;
  mutable std::mutex mutex_;
  std::map<AddressKey, Entry> entries_;
  std::list<AddressKey> order_;  // by `last`, the oldest first
  size_t waiting_ = 0;
};

}  // namespace outboard::gateway
