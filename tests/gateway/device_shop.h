// Pools of devices and the queue for them, with a clock, for tests of the policy alone: grants are
// carried out.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "gateway/queue/device_pools.h"
#include "gateway/queue/device_queue.h"

namespace outboard::gateway {

inline constexpr int64_t kSecond = 1'000'000'000;
inline constexpr TenantId kAnna{1}, kBert{2}, kCara{3};

inline MonoTime At(double seconds) { return {static_cast<int64_t>(seconds * kSecond)}; }
inline SessionId Session(uint64_t number) { return {0, number}; }

inline DevicePool Pool(uint64_t worker, uint32_t total, const std::string& pool_name = "h100") {
  return {.worker = {worker}, .pool_name = pool_name, .total = total, .free = total};
}

// Pools and a queue, with a clock; grants are carried out.
struct Shop {
  explicit Shop(const std::vector<DevicePool>& all, uint32_t quota = 0) : queue(quota) {
    for (const DevicePool& pool : all) pools.Set(pool);
  }
  void Ask(uint64_t session, TenantId account, DeviceWish wish = {}, bool first = false) {
    queue.Add({.session = Session(session), .account = account, .wish = wish, .goes_first = first},
              now);
  }
  // The sessions that start now, in order.
  std::vector<uint64_t> Start() {
    std::vector<uint64_t> started;
    for (;;) {
      const auto grants = queue.Next(pools, {});
      if (grants.empty()) return started;
      for (const DeviceGrant& grant : grants) {
        pools.Take(grant.parts);
        held[grant.session.lo] = grant.parts;
        started.push_back(grant.session.lo);
      }
      for (const DeviceGrant& grant : grants) {
        queue.Remove(grant.session, pools);
        queue.Took(account[grant.session.lo], Devices(grant.parts), now);
      }
    }
  }
  void Open(uint64_t session, TenantId of, DeviceWish wish = {}) {
    account[session] = of;
    Ask(session, of, wish);
  }
  void Leave(uint64_t session) {
    pools.GiveBack(held.at(session));
    queue.Gave(account[session], Devices(held.at(session)), now);
    held.erase(session);
  }
  static uint32_t Devices(const Parts& parts) {
    uint32_t devices = 0;
    for (const PlacedPart& part : parts) devices += part.devices;
    return devices;
  }
  void Pass(double seconds) {
    for (double s = 0; s < seconds; s += 1) {
      now.ns += kSecond;
      queue.Accrue(pools, now);
    }
  }
  std::vector<uint64_t> Order() const {
    std::vector<uint64_t> order;
    for (const QueuePlace& place : queue.Positions(now)) order.push_back(place.session.lo);
    return order;
  }

  DevicePools pools;
  DeviceQueue queue;
  MonoTime now;
  std::map<uint64_t, Parts> held;
  std::map<uint64_t, TenantId> account;
};

using Sessions = std::vector<uint64_t>;

}  // namespace outboard::gateway
