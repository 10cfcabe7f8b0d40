// Counts the seconds for which leased devices could be used, and turns whole ones into charges.
//
// A core: no clock, thread, file or randomness inside. One thread owns it. Time is told, monotonic,
// and one that is earlier than a time told before counts as that time.
//
// What is counted. A leased device is *usable* from its grant to its release, except while it is
// paused (BEAM has it, the session queues, state is being moved). Time counts only once it is
// *confirmed*: Confirm(device, now) says that the device was heard from at `now`; Pause, Resume and
// Release are such news too. Lose() ends a lease without news, so the time since the last
// confirmation is never charged: the customer could not use it. Therefore nothing is ever charged
// that would have to be given back.
//
// Which seconds. The usable, confirmed time of a leased device is one length, grown over its
// pauses; each time it reaches another whole second, that second [k, k+1) is charged, once. What is
// left when the lease ends, always less than one second, is not charged. So a lease of 3.9 s costs
// 3 seconds per device and so does one of 2.5 s, a pause and 1.4 s.
//
// Amounts. A charge for [from, to) is ChargeAfter(to) - ChargeAfter(from): charges of a lease
// telescope to ChargeAfter(all its seconds) whatever ranges they were cut into.
//
// The caller hands the charges to Ledger::Post and may do so again when it does not know whether
// that succeeded. Steps never come near either.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gateway/ledger/ids.h"
#include "gateway/ledger/money.h"

namespace outboard::gateway {

// Seconds [from_s, to_s) of one device of one lease, ready to be posted. Also what the ledger
// stores.
struct Charge {
  LeasedDevice device;
  TenantId tenant;
  MicroUsd price_per_hour;
  WallTime granted_at;
  int64_t from_s = 0;
  int64_t to_s = 0;
  MicroUsd amount;
  bool operator==(const Charge&) const = default;
};

// Why a device is not usable though leased. Several may hold at once; time counts when none does.
enum class PauseReason : uint8_t { kBeam = 1, kQueueing = 2, kMoving = 4, kOther = 8 };

struct MeterOptions {
  // Whole seconds gathered into one charge; the rest comes at release. 1 posts every second; more
  // keep the ledger small, at the risk of not charging that many seconds if the gateway dies.
  int64_t seconds_per_charge = 5;
  // A confirmation this much later than the one before does not vouch for the time between: a
  // worker that was unheard for its lease's time-to-live has stopped its executors. 0: vouches for
  // all of it.
  int64_t unheard_max_ns = 0;
};

struct GrantRequest {
  LeasedDevice device;
  TenantId tenant;
  MicroUsd price_per_hour = kDefaultPricePerHour;
  WallTime granted_at;  // stamped once, for people
};

class Meter {
 public:
  explicit Meter(MeterOptions options = {}) : options_(options) {}

  // Starts to count at `now`.
  // Errors: ALREADY_EXISTS  the device of this lease is being metered
  //         OUT_OF_RANGE    price, or a tenant that is not positive
  //         RESOURCE_EXHAUSTED  kMeteredDevicesMax
  absl::Status Grant(const GrantRequest& request, MonoTime now);

  // The device was heard from at `now`. NOT_FOUND: not metered (never granted, or ended); so below.
  absl::StatusOr<std::vector<Charge>> Confirm(const LeasedDevice& device, MonoTime now);

  // Setting a reason that is set, or clearing one that is not, changes nothing but confirms.
  absl::StatusOr<std::vector<Charge>> Pause(const LeasedDevice& device, PauseReason why,
                                            MonoTime now);
  absl::StatusOr<std::vector<Charge>> Resume(const LeasedDevice& device, PauseReason why,
                                             MonoTime now);

  // The orderly end: counts until `now`, returns what is left to charge and forgets the device.
  absl::StatusOr<std::vector<Charge>> Release(const LeasedDevice& device, MonoTime now);

  // The end without news: as Release at the moment of the last confirmation.
  absl::StatusOr<std::vector<Charge>> Lose(const LeasedDevice& device);

  // What has been confirmed so far, charged yet or not: for `Done`'s running cost. Zero for a
  // device unknown.
  struct Reading {
    int64_t seconds = 0;  // whole
    MicroUsd amount;
  };
  Reading Read(const LeasedDevice& device) const;
  // The sum over the devices of a lease.
  Reading Read(const LeaseId& lease) const;

  size_t metered_count() const { return devices_.size(); }

 private:
  struct State {
    TenantId tenant;
    MicroUsd price_per_hour;
    WallTime granted_at;
    MonoTime confirmed;     // time up to here is in usable_ns or was not usable
    int64_t usable_ns = 0;  // at most kLeaseSecondsMax seconds
    int64_t charged_s = 0;  // <= usable_ns / 1e9
    uint8_t pauses = 0;     // bits of PauseReason
  };
  using Devices = std::map<LeasedDevice, State>;  // ordered, since charges leave in this order

  void Advance(State& state, MonoTime now) const;
  void Emit(const LeasedDevice& device, State& state, int64_t at_least_s,
            std::vector<Charge>& out) const;
  absl::StatusOr<std::vector<Charge>> End(Devices::iterator at);

  MeterOptions options_;
  Devices devices_;
};

}  // namespace outboard::gateway
