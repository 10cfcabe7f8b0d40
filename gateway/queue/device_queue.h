// Who gets a device next.
//
//   queue.Add(request, now);
//   while (!(grants = queue.Next(pools, passed)).empty()) ...  // place them, or pass them over
//
// Order. What was open already and lost its executor goes first. Then the account that has used the
// least of late (fair_shares.h), and of its requests the oldest. Who does not fit is passed over;
// the first that wants several devices and does not fit reserves them for a while
// (device_pools.h), or a stream of small ones would starve it. An account at its quota is not
// looked at until it gives a device back. A gang waits for all members, and gets all or nothing.
//
// Threads: none of its own; not thread-safe. Pure.
// Cost: Next takes O(wishes + log n), for as many different wishes as there are; Positions
// O(n log accounts).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "gateway/ledger/ids.h"
#include "gateway/queue/device_pools.h"
#include "gateway/queue/fair_shares.h"

namespace outboard::gateway {

// How long devices stand idle for a request of several that does not fit. Enough for the sessions
// of a few minutes to end; where devices are held for longer, others go on until chance frees them.
// An account whose reservation came to nothing may have the next one after as long as it lasted.
inline constexpr int64_t kReservationMaxNs = 300'000'000'000;

// A session's wait for devices.
struct DeviceRequest {
  SessionId session;
  TenantId account;
  DeviceWish wish = {};
  bool goes_first = false;  // it was open, and its executor was lost
  std::string class_before = {};
  std::vector<WorkerId> warm = {};  // as in PlaceHints
  std::optional<WorkerId> last_resort = {};
  // Sessions of one account that start together, or wait: they name the same gang, and how many
  // they are.
  std::string gang = {};
  uint32_t gang_size = 1;
};

// Who goes next, and what it gets.
struct DeviceGrant {
  SessionId session;
  Parts parts;
};

// What a session waits for: devices that others hold, its account's quota, the others of its gang.
enum class WaitReason { kDevices, kQuota, kGang };

struct QueuePlace {
  SessionId session;
  uint64_t before = 0;                     // sessions that go before it, as far as is known
  std::optional<int64_t> expected_s = {};  // nothing: not known yet
  WaitReason reason = WaitReason::kDevices;
};

class DeviceQueue {
 public:
  // `quota`: the most devices that an account holds at a time; 0: any number.
  explicit DeviceQueue(uint32_t quota = 0) : quota_(quota) {}

  void Add(const DeviceRequest& request, MonoTime now);
  void Remove(const SessionId& session, DevicePools& pools);  // no error if it does not wait
  bool Has(const SessionId& session) const;
  size_t size() const { return order_of_.size(); }

  // The sessions that go next, and where: one, or a whole gang. They stay in the queue until
  // Remove. Empty: nobody who waits fits. `passed`: sessions that are not looked at, and wait on.
  std::vector<DeviceGrant> Next(DevicePools& pools, const std::set<SessionId>& passed);

  // An account holds so many more devices, or fewer.
  void Took(TenantId account, uint32_t devices, MonoTime now);
  void Gave(TenantId account, uint32_t devices, MonoTime now);
  // What an account used before this queue was made, decayed to `now`.
  void RememberUse(TenantId account, double device_s, MonoTime now);
  uint32_t HeldBy(TenantId account) const;
  // Whether the quota of its account allows it.
  bool MayHold(const DeviceRequest& request) const {
    return quota_ == 0 || HeldBy(request.account) + uint64_t{request.wish.devices} <= quota_;
  }
  // Counts what is held as used, up to now, and what is reserved and free; ends a reservation that
  // has lasted too long. Call about once a second.
  void Accrue(DevicePools& pools, MonoTime now);

  // Of everybody who waits, in order.
  std::vector<QueuePlace> Positions(MonoTime now) const;

  const FairShares& shares() const { return shares_; }
  uint32_t quota() const { return quota_; }

 private:
  // Requests of one account with the same wish, oldest first.
  struct Line;
  using Wish = std::pair<DeviceWish, uint32_t>;  // and how many sessions get it together
  struct Waiting {
    std::vector<DeviceRequest> members;
    Line* line = nullptr;
  };
  struct Turn {  // lower goes first
    bool later = true;
    double rank = 0;
    uint64_t order = 0;
    Line* line = nullptr;
    bool operator<(const Turn& other) const {
      return std::tie(later, rank, order) < std::tie(other.later, other.rank, other.order);
    }
  };
  struct Line {
    TenantId account;
    bool goes_first = false;
    const Wish* wish = nullptr;
    std::map<uint64_t, Waiting> waiting;  // by order
    std::optional<Turn> turn;             // none: it is not listed
  };
  struct Account {
    uint32_t held = 0;
    std::map<std::pair<bool, Wish>, Line> lines;
    MonoTime accrued;
  };
  using Turns = std::map<Wish, std::set<Turn>>;

  void AddWaiting(std::vector<DeviceRequest> members, uint64_t order, MonoTime now);
  void List(Line& line, MonoTime now);
  void Unlist(Line& line);
  void Rerank(TenantId account, MonoTime now);
  void Watch(MonoTime now);
  void AccrueOne(TenantId id, Account& account, MonoTime now);
  double RankOf(TenantId account, MonoTime now) const;
  std::optional<std::vector<DeviceGrant>> Fit(uint64_t order, const Waiting& waiting,
                                              DevicePools& pools) const;
  std::optional<std::vector<DeviceGrant>> FitOwner(DevicePools& pools,
                                                   const std::set<SessionId>& passed);
  bool ReserveFor(uint64_t order, const Waiting& waiting, DevicePools& pools);
  bool MayReserve(TenantId account) const;
  void EndReservation(DevicePools& pools);
  void CheckReservation(DevicePools& pools, MonoTime now);
  bool IsOverQuota(const Line& line) const;
  static bool IsPassed(const Waiting& waiting, const std::set<SessionId>& passed);
  static PlaceHints HintsOf(const DeviceRequest& request);
  std::optional<int64_t> ExpectedS(uint64_t devices, MonoTime now) const;

  const uint32_t quota_;
  FairShares shares_;
  std::map<TenantId, Account> accounts_;
  Turns turns_;
  std::map<SessionId, uint64_t> order_of_;
  std::map<uint64_t, Line*> line_of_;  // by order
  struct Gathering {
    uint64_t order = 0;  // of its first member
    std::vector<DeviceRequest> members;
  };
  std::map<std::pair<TenantId, std::string>, Gathering> gathering_;
  // That of pools, while it lasts. `fits`: its owner was the last that Next granted, and
  // has not been passed over since.
  struct Reserved {
    TenantId account;
    bool is_own = false;
    bool fits = false;
    MonoTime since, accrued;
  };
  std::optional<Reserved> reserved_;
  std::map<TenantId, MonoTime> may_reserve_from_;
  uint64_t last_order_ = 0;
  MonoTime seen_;  // the time of the last Add or Accrue
  // How often devices become free, over the last minutes: both decay.
  double given_ = 0, watched_s_ = 0;
  std::optional<MonoTime> watched_until_;
};

}  // namespace outboard::gateway
