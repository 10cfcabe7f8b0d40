// Where a request fits: the devices of a fleet, by class and worker.
//
// Devices of one class on one worker are a *pool*. A request gets all of its devices in one class,
// or none; on one worker if it fits there, else on as few as will do, of those whose devices can
// work together with another worker's, which has the same build. One device goes to the pool with
// the fewest free ones, so that whole workers stay free for those who want many.
//
// A request that has to wait for many devices may *reserve* pools: nobody else gets a device there
// until it has its own. So it waits for what runs there now, and not for whoever comes after it.
//
// Threads: none of its own; not thread-safe. Pure. Errors: none; what does not fit is nullopt.
// Cost: Pick takes O(classes + parts * log workers), if no pool is barred to the account.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "gateway/base/worker_id.h"
#include "gateway/ledger/ids.h"
#include "gateway/ledger/money.h"

namespace outboard::gateway {

struct DevicePool {
  WorkerId worker;
  std::string pool_name;         // class and kind of hardware, as PoolNameOf (core/events.h)
  uint32_t total = 0, free = 0;  // in service
  uint64_t memory_bytes = 0;     // of its smallest device; 0: not reported
  MicroUsd price_per_hour;       // of its dearest device
  std::optional<TenantId> only;  // the account that its worker serves alone just now
  bool spans = true;             // its devices work together with others that span
  std::string build = {};        // of its worker; only devices of one build work together
  bool is_own = false;           // and always: it is a machine of that account's
  bool operator==(const DevicePool&) const = default;
};

// What a request asks for. Requests with the same wish fit in the same places, but for the account.
struct DeviceWish {
  uint32_t devices = 1;
  std::string device_class = {};         // empty: any; "small" is also every "small/..."
  uint64_t memory_bytes = 0;             // at least, of each device; pools that report none fit
  std::optional<WorkerId> only_on = {};  // where its state is
  uint32_t workers_max = 1;              // 0: any number
  bool is_own = false;  // of machines of the account's own alone, which count for no quota
  auto operator<=>(const DeviceWish&) const = default;
};

// What makes one place better than another, or bars it.
struct PlaceHints {
  TenantId account;
  std::string class_before = {};    // of a session that goes on: the same bits
  std::vector<WorkerId> warm = {};  // have its kernels and blobs, best first
  std::optional<WorkerId> last_resort = {};
  const std::set<WorkerId>* barred = nullptr;
};

struct PlacedPart {
  WorkerId worker;
  std::string pool_name;
  uint32_t devices = 0;
  bool operator==(const PlacedPart&) const = default;
};
using Parts = std::vector<PlacedPart>;

class DevicePools {
 public:
  void Set(DevicePool pool);    // new, or another state of one that is known
  void Erase(WorkerId worker);  // all of its pools
  std::optional<Parts> Pick(const DeviceWish& wish, const PlaceHints& hints) const;
  // Until Set says so too.
  void Take(const Parts& parts);
  void GiveBack(const Parts& parts);

  // The most devices that a request of this account with this wish could have if all were free, and
  // their workers had one build: they have again once a rollout is over.
  uint32_t Largest(const DeviceWish& wish, TenantId account = {}) const;
  bool any_free() const { return free_ > 0 || reservation_.has_value(); }
  // Whether a pool with free devices is of one account: what does not fit for one may for another.
  bool any_barred() const { return barred_ > 0; }

  // One reservation at a time; `owner` is a number of the caller's. False: there is one already, or
  // no class has as many devices. `each`: of several requests, whose devices need not work
  // together: so many at a time must be of one worker; 0: of one request.
  bool Reserve(uint64_t owner, const DeviceWish& wish, const PlaceHints& hints, uint32_t each = 0);
  void EndReservation();
  std::optional<uint64_t> reserved_by() const;
  uint32_t reserved_free() const;  // devices that stand idle for the owner
  // As Pick, for the owner: also among the pools that it has reserved.
  std::optional<Parts> PickReserved(const DeviceWish& wish, const PlaceHints& hints) const;

  // For tests and invariants.
  std::vector<DevicePool> All() const;
  const DevicePool* Find(WorkerId worker, const std::string& pool_name) const;
  size_t CountBut(const std::set<WorkerId>& workers) const;  // pools of all but these

 private:
  struct ClassPools {
    std::map<WorkerId, DevicePool> pools;
    // Without those that are reserved: by the number of free devices, which is above 0.
    std::map<uint32_t, std::set<WorkerId>> by_free;
    std::map<uint32_t, uint32_t> totals;  // how many pools have so many devices
    uint32_t free = 0, total = 0;         // `free`: without those that are reserved
    std::map<std::string, uint32_t> spanning;  // of `total`: of pools that span, by build
    void CountSpanning(const DevicePool& pool, bool comes);
  };
  struct Reservation {
    uint64_t owner = 0;
    std::string pool_name;
    std::set<WorkerId> workers;
  };

  using Classes = std::map<std::string, ClassPools>;
  bool IsReserved(const std::string& pool_name, WorkerId worker) const;
  void List(ClassPools& of_class, const DevicePool& pool);
  void Unlist(ClassPools& of_class, const DevicePool& pool);
  void Move(const Parts& parts, bool take);
  static bool IsOf(const DeviceWish& wish, const std::string& pool_name);
  static bool Fits(const DevicePool& pool, const DeviceWish& wish, const PlaceHints& hints);
  // Those that have enough devices in all, best first.
  std::vector<Classes::const_iterator> ClassesFor(const DeviceWish& wish,
                                                  const PlaceHints& hints) const;
  std::optional<Parts> PickOne(const Classes::value_type& of_class, const DeviceWish& wish,
                               const PlaceHints& hints) const;
  std::optional<Parts> PickMany(const Classes::value_type& of_class, const DeviceWish& wish,
                                const PlaceHints& hints, bool reserved_too) const;
  // The same, on workers of this build.
  std::optional<Parts> PickManyOf(const std::string& build, const Classes::value_type& of_class,
                                  const DeviceWish& wish, const PlaceHints& hints,
                                  bool reserved_too) const;

  Classes classes_;
  std::map<WorkerId, std::set<std::string>> classes_of_;
  uint32_t free_ = 0, barred_ = 0;  // of those that are not reserved
  std::optional<Reservation> reservation_;
};

}  // namespace outboard::gateway
