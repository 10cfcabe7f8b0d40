// A leased device:
//
//              Grant                Pause(r): pauses |= r
//   (unknown) ───────► counting ◄──────────────────────────► paused
//                         │        Resume(r): pauses &= ~r      │
//                         └──────── Release, Lose ──────────────┘──► (unknown)
//
// Invariants, for each device, at the end of each call:
//   MT1 usable_ns is the length of the union of the spans between confirmations in which no pause
//       was set (a span longer than unheard_max_ns, where one is set, left out, but for what is
//       stored), up to funded_ms
//   MT2 milliseconds [0, charged_ms) are exactly those of the charges returned so far, each in one
//       of them
//   MT3 charged_ms <= usable_ns / 1e6 <= funded_ms, and the first two are equal once the device has
//       ended
//   MT4 confirmed never goes back
#include "gateway/ledger/meter.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace outboard::gateway {
namespace {

absl::Status NotMetered(const LeasedDevice& device) {
  return absl::NotFoundError(absl::StrCat("device ", device.device, " of session ",
                                          device.lease.session.Hex(), ", grant ",
                                          device.lease.grant, ", is not metered"));
}

}  // namespace

absl::Status Meter::Grant(const GrantRequest& request, MonoTime now) {
  OB_RETURN_IF_ERROR(CheckPrice(request.price_per_hour));
  if (request.funded_ms < 0 || request.funded_ms > kLeaseMsMax)
    return absl::OutOfRangeError("funds of a lease are 0 to 68 years of it");
  if (request.tenant.value <= 0) return absl::OutOfRangeError("a lease needs an account");
  if (devices_.size() >= kMeteredDevicesMax) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the meter follows ", kMeteredDevicesMax, " devices at most"));
  }
  const bool inserted =
      devices_
          .try_emplace(request.device, State{.tenant = request.tenant,
                                             .price_per_hour = request.price_per_hour,
                                             .granted_at = request.granted_at,
                                             .confirmed = now,
                                             .funded_ms = request.funded_ms,
                                             .use = request.use})
          .second;
  if (!inserted) {
    return absl::AlreadyExistsError(absl::StrCat("device ", request.device.device, " of session ",
                                                 request.device.lease.session.Hex(),
                                                 " is metered already"));
  }
  return absl::OkStatus();
}

// MT1, MT4.
void Meter::Advance(State& state, MonoTime now) const {
  if (now <= state.confirmed) return;
  // Unsigned, since the clock's epoch is arbitrary.
  const uint64_t span_ns =
      static_cast<uint64_t>(now.ns) - static_cast<uint64_t>(state.confirmed.ns);
  state.confirmed = now;
  if (state.pauses != 0) return;
  const bool needs_life = options_.unheard_max_ns > 0 && state.use != UseState::kStored;
  if (needs_life && span_ns > static_cast<uint64_t>(options_.unheard_max_ns)) return;
  const auto room_ns = static_cast<uint64_t>(state.funded_ms * kNsPerMs - state.usable_ns);
  state.usable_ns += static_cast<int64_t>(std::min(span_ns, room_ns));
}

// MT2: the next charge begins where the last one ended.
void Meter::Emit(const LeasedDevice& device, State& state, int64_t at_least_ms,
                 std::vector<Charge>& out) const {
  const int64_t whole_ms = state.usable_ns / kNsPerMs;
  OB_CHECK(state.charged_ms <= whole_ms);
  if (whole_ms - state.charged_ms < std::max<int64_t>(1, at_least_ms)) return;
  const MicroUsd before = ChargeAfter(state.price_per_hour, state.charged_ms);
  const MicroUsd after = ChargeAfter(state.price_per_hour, whole_ms);
  out.push_back(Charge{.device = device,
                       .tenant = state.tenant,
                       .price_per_hour = state.price_per_hour,
                       .granted_at = state.granted_at,
                       .from_ms = state.charged_ms,
                       .to_ms = whole_ms,
                       .amount = MicroUsd{after.value - before.value},
                       .use = state.use});
  state.charged_ms = whole_ms;
}

void Meter::Fund(const LeasedDevice& device, int64_t funded_ms) {
  if (const auto at = devices_.find(device); at != devices_.end())
    at->second.funded_ms = std::clamp(funded_ms, at->second.funded_ms, kLeaseMsMax);
}

int64_t Meter::FundsLeftNs(const LeasedDevice& device, MonoTime now) const {
  const auto at = devices_.find(device);
  if (at == devices_.end()) return 0;
  const State& state = at->second;
  const int64_t left_ns = state.funded_ms * kNsPerMs - state.usable_ns;
  if (state.pauses != 0 || now <= state.confirmed) return left_ns;
  return left_ns - (now.ns - state.confirmed.ns);
}

absl::StatusOr<std::vector<Charge>> Meter::Confirm(const LeasedDevice& device, MonoTime now) {
  const auto at = devices_.find(device);
  if (at == devices_.end()) return NotMetered(device);
  std::vector<Charge> charges;
  Advance(at->second, now);
  Emit(device, at->second,
       HoldsDevice(at->second.use) ? options_.ms_per_charge : options_.kept_ms_per_charge, charges);
  return charges;
}

absl::StatusOr<std::vector<Charge>> Meter::Pause(const LeasedDevice& device, PauseReason why,
                                                 MonoTime now) {
  OB_ASSIGN_OR_RETURN(std::vector<Charge> charges, Confirm(device, now));
  devices_.at(device).pauses |= static_cast<uint8_t>(why);
  return charges;
}

absl::StatusOr<std::vector<Charge>> Meter::Resume(const LeasedDevice& device, PauseReason why,
                                                  MonoTime now) {
  OB_ASSIGN_OR_RETURN(std::vector<Charge> charges, Confirm(device, now));
  devices_.at(device).pauses &= static_cast<uint8_t>(~static_cast<uint8_t>(why));
  return charges;
}

// MT3.
absl::StatusOr<std::vector<Charge>> Meter::End(Devices::iterator at) {
  std::vector<Charge> charges;
  Emit(at->first, at->second, 1, charges);
  devices_.erase(at);
  return charges;
}

absl::StatusOr<std::vector<Charge>> Meter::Release(const LeasedDevice& device, MonoTime now) {
  const auto at = devices_.find(device);
  if (at == devices_.end()) return NotMetered(device);
  Advance(at->second, now);
  return End(at);
}

absl::StatusOr<std::vector<Charge>> Meter::Lose(const LeasedDevice& device) {
  const auto at = devices_.find(device);
  if (at == devices_.end()) return NotMetered(device);
  return End(at);
}

Meter::Reading Meter::ReadState(const State& state) {
  const int64_t whole_ms = state.usable_ns / kNsPerMs;
  return {whole_ms, ChargeAfter(state.price_per_hour, whole_ms)};
}

Meter::Reading Meter::Read(const LeasedDevice& device) const {
  const auto at = devices_.find(device);
  return at == devices_.end() ? Reading{} : ReadState(at->second);
}

int64_t Meter::MsOf(const LeaseId& lease) const {
  int64_t sum_ms = 0;
  for (auto at = devices_.lower_bound(LeasedDevice{lease, 0});
       at != devices_.end() && at->first.lease == lease; ++at)
    sum_ms += at->second.usable_ns / kNsPerMs;
  return sum_ms;
}

Meter::Reading Meter::Read(const LeaseId& lease) const {
  Reading sum;
  for (auto at = devices_.lower_bound(LeasedDevice{lease, 0});
       at != devices_.end() && at->first.lease == lease; ++at) {
    const Reading one = ReadState(at->second);
    sum.ms += one.ms;
    // Saturates: a reading is for display; the ledger rejects amounts that do not fit.
    const auto total = Add(sum.amount, one.amount);
    sum.amount = total.ok() ? *total : MicroUsd{kAmountMaxMicroUsd};
  }
  return sum;
}

}  // namespace outboard::gateway
