// Counts the time for which leased devices were usable, and turns whole milliseconds into charges.
//
// A core: no clock, thread, file or randomness inside. One thread owns it. Callers pass the
// monotonic time; a time before the latest one passed so far counts as the latest.
//
// Usable time. A leased device is *usable* from its grant to its release, except while it is
// paused: while work is repeated after a fault of ours, and until the lease's row is on disk. A
// search for better kernels on a session's own device does not pause it. Time counts only once it
// is *confirmed*: Confirm(device, now) reports a sign of life at `now`; Pause, Resume and Release
// confirm too. Lose() ends a lease without a sign of life, so the time since the last confirmation
// is never charged: the customer could not use it. Therefore no charge ever has to be refunded.
//
// Milliseconds. The usable, confirmed time of a leased device accumulates over its pauses; each
// whole millisecond [k, k+1) of the sum is charged, once. The remainder when the lease ends, less
// than a millisecond, is not charged.
//
// Funds. Time counts up to `funded_ms` alone, which is how much of the lease its hold pays for
// (gateway/ledger/holds.h): so no charge is ever more than what is held, whatever else goes wrong.
//
// States. A lease is of one state (use_state.h), at the price of that state: a session that begins
// to run, or to be stored, begins another lease. What is on the gateway's own disk needs no sign of
// life.
//
// Amounts. A charge for [from, to) is ChargeAfter(to) - ChargeAfter(from): charges of a lease
// telescope to ChargeAfter(all its milliseconds) however the ranges are cut.
//
// The caller passes the charges to Ledger::Post and may post them again if it does not know whether
// that succeeded. Steps never wait for the meter or the ledger.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gateway/ledger/ids.h"
#include "gateway/ledger/money.h"
#include "gateway/ledger/use_state.h"

namespace outboard::gateway {

// Milliseconds [from_ms, to_ms) of one device of one lease, ready to be posted. Also what the
// ledger stores.
struct Charge {
  LeasedDevice device;
  TenantId tenant;
  MicroUsd price_per_hour;
  WallTime granted_at;
  int64_t from_ms = 0;
  int64_t to_ms = 0;
  MicroUsd amount;
  UseState use = UseState::kRun;
  bool operator==(const Charge&) const = default;
};

// Why a leased device is not usable. Several may hold at once; time counts when none does.
// kReplay: work is repeated after a fault of ours. kUnwritten: the lease's row is not on disk yet,
// so that neither its client nor its worker knows of it.
enum class PauseReason : uint8_t { kReplay = 1, kUnwritten = 2 };

struct MeterOptions {
  // Usable time per charge; the rest is charged at release. More keeps the ledger small, at the
  // risk of not charging that much if the gateway dies.
  int64_t ms_per_charge = 5000;
  int64_t kept_ms_per_charge = 60'000;  // the same of state that is parked or stored
  // A confirmation this long after the one before does not count the time between: a worker without
  // contact for its lease's time-to-live has stopped its executors. 0: counts all of it.
  int64_t unheard_max_ns = 0;
};

struct GrantRequest {
  LeasedDevice device;
  TenantId tenant;
  MicroUsd price_per_hour = kDefaultPricePerHour;
  WallTime granted_at;  // stamped once, for people
  int64_t funded_ms = kLeaseMsMax;
  UseState use = UseState::kRun;
};

class Meter {
 public:
  explicit Meter(MeterOptions options = {}) : options_(options) {}

  // Starts to count at `now`.
  // Errors: ALREADY_EXISTS  the device of this lease is metered already
  //         OUT_OF_RANGE    price, or a tenant that is not positive, or funds below 0
  //         RESOURCE_EXHAUSTED  kMeteredDevicesMax
  absl::Status Grant(const GrantRequest& request, MonoTime now);

  // Confirms that the device was alive at `now`. NOT_FOUND, here and below: not metered (never
  // granted, or ended).
  absl::StatusOr<std::vector<Charge>> Confirm(const LeasedDevice& device, MonoTime now);

  // Setting a reason that is set, or clearing one that is not, changes nothing but confirms.
  absl::StatusOr<std::vector<Charge>> Pause(const LeasedDevice& device, PauseReason why,
                                            MonoTime now);
  absl::StatusOr<std::vector<Charge>> Resume(const LeasedDevice& device, PauseReason why,
                                             MonoTime now);

  // Time counts up to `funded_ms` from now on. Never goes back. Unknown device: no effect.
  void Fund(const LeasedDevice& device, int64_t funded_ms);

  // Returns for how long the device could still be used at `now` before its funds end, with the
  // time since the last confirmation taken as used. At most 0: they have ended, or it is unknown.
  int64_t FundsLeftNs(const LeasedDevice& device, MonoTime now) const;

  // Ends metering in order: counts until `now`, returns the remaining charges and drops the device.
  absl::StatusOr<std::vector<Charge>> Release(const LeasedDevice& device, MonoTime now);

  // Ends metering of a device that is out of contact: as Release at the moment of the last
  // confirmation.
  absl::StatusOr<std::vector<Charge>> Lose(const LeasedDevice& device);

  // The confirmed time so far, charged yet or not: for the running cost in `Done`. Zero for an
  // unknown device.
  struct Reading {
    int64_t ms = 0;  // whole
    MicroUsd amount;
  };
  Reading Read(const LeasedDevice& device) const;
  // Returns the sum over the devices of a lease.
  Reading Read(const LeaseId& lease) const;
  int64_t MsOf(const LeaseId& lease) const;  // of that sum, the time alone

  size_t metered_count() const { return devices_.size(); }

 private:
  struct State {
    TenantId tenant;
    MicroUsd price_per_hour;
    WallTime granted_at;
    MonoTime confirmed;     // time up to here is in usable_ns or was not usable
    int64_t usable_ns = 0;   // at most funded_ms
    int64_t charged_ms = 0;  // <= usable_ns / 1e6
    int64_t funded_ms = 0;
    uint8_t pauses = 0;     // set of PauseReason bits
    UseState use = UseState::kRun;
  };
  using Devices = std::map<LeasedDevice, State>;  // ordered: charges are returned in this order

  static Reading ReadState(const State& state);
  void Advance(State& state, MonoTime now) const;
  void Emit(const LeasedDevice& device, State& state, int64_t at_least_ms,
            std::vector<Charge>& out) const;
  absl::StatusOr<std::vector<Charge>> End(Devices::iterator at);

  MeterOptions options_;
  Devices devices_;
};

}  // namespace outboard::gateway
