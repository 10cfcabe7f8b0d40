// The part of GatewayCore that decides what a session is charged for: RUN and HELD while it has a
// device, PARKED and STORED for its state alone (gateway/ledger/use_state.h). Each is a lease of
// its own, at its own price, with a hold of its own; where a state costs nothing there is none.
//
//   RUN --no work for held_after_ns/ChangeUse--> HELD --work/ChangeUse--> RUN
//   kParked, outside of the queue --CheckUse--> PARKED
//   kStored --CheckUse--> STORED
//   PARKED, STORED --Enqueue, Store/EndStateLease--> (none)
//   any --the session ends, its worker is lost/ReleaseDevices--> (none)
//
// A lease in a new state is free until its hold is there. State that nobody pays for is kept at our
// expense, for as long as the session may be without a device (CheckDeadlines).
#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gateway/core/core.h"

namespace outboard::gateway {

void GatewayCore::CheckUse(Session& session, Out& out) {
  if (!session.billing.prices.has_value()) return;
  if (session.lease.for_devices) {
    const bool costs_the_same =
        session.billing.prices->Of(UseState::kHeld) == session.billing.prices->run;
    if (costs_the_same || session.replay.active || !session.billing.stopped.ok()) return;
    const bool idle = !session.progress.busy && !session.progress.awaits_answer &&
                      now_.ns - session.progress.idle_since.ns >= options_.held_after_ns;
    const UseState wanted = idle ? UseState::kHeld : UseState::kRun;
    if (wanted == session.lease.use) return;
    // Another lease is to follow this one soon. Work is not charged less meanwhile.
    if (idle && session.takeover.has_value()) return;
    EndMeter(session, session.placement.slots_held(), /*lost=*/false,
             idle ? LeaseEnd::kHeld : LeaseEnd::kRunsAgain, out);
    return ChangeUse(session, wanted, session.placement.slots_held(), out);
  }
  if (session.lease.for_state) return CheckStateLease(session, out);
  const bool is_stored = session.state == State::kStored;
  if (session.billing.state_is_unpaid || session.is_waiting() ||
      (!is_stored && session.state != State::kParked))
    return;
  const UseState wanted = is_stored ? UseState::kStored : UseState::kParked;
  if (session.billing.prices->Of(wanted) == MicroUsd{}) return;
  ChangeUse(session, wanted, session.request.devices, out);
  session.lease.for_state = true;
}

void GatewayCore::ChangeUse(Session& session, UseState use, uint32_t devices, Out& out) {
  GrantPaused(session, use, devices, out);
  HoldFor(session, use, devices, out);
}

void GatewayCore::CheckStateLease(Session& session, Out& out) {
  if (session.lease.use == UseState::kStored) ConfirmStateLease(session, out);
  const Session::Hold& hold = session.hold;
  if (hold.is_requested) return;
  const int64_t left_ns = FundsLeftNs(session);
  if (hold.limit.ok() && left_ns < options_.state_hold_ms * kNsPerMs / 2)
    return AskHold(session, hold.funded_ms + options_.state_hold_ms, out);
  if (hold.limit.ok() || left_ns > 0) return;
  EndStateLease(session, /*lost=*/false, LeaseEnd::kNoCredit, out);
  session.billing.state_is_unpaid = true;
}

// Of what is parked its worker says that it is there; what is stored is here.
void GatewayCore::ConfirmStateLease(Session& session, Out& out) {
  if (!session.lease.for_state) return;
  std::vector<Charge> charges;
  for (uint32_t device = 0; device < session.request.devices; ++device) {
    const auto more = meter_.Confirm({{session.id, session.lease.grant}, device}, now_);
    if (more.ok()) session.billing.Add(*more, charges);
  }
  PostCharges(std::move(charges), out);
}

void GatewayCore::EndStateLease(Session& session, bool lost, LeaseEnd why, Out& out) {
  if (!std::exchange(session.lease.for_state, false)) return;
  EndMeter(session, session.request.devices, lost, why, out);
}

std::set<std::string> GatewayCore::ClassesInUse() const {
  std::set<std::string> classes;
  for (const auto& [id, worker] : workers_)
    for (const Slot& slot : worker.slots) classes.insert(slot.device.price_class);
  for (const auto& [id, session] : sessions_)
    if (session.billing.prices.has_value()) classes.insert(session.billing.prices->price_class);
  classes.erase("");
  classes.erase(kOwnMachines);
  return classes;
}

// A session keeps the price that it has.
void GatewayCore::Handle(const PricesSet& event, Out&) {
  // Where a program that asks for no class goes first; the first of several.
  const auto cheapest = std::ranges::min_element(event.prices, {}, &ClassPrices::run);
  if (cheapest != event.prices.end()) default_class_ = *cheapest;
  for (auto& [id, worker] : workers_) {
    for (Slot& slot : worker.slots) {
      for (const ClassPrices& of : event.prices) {
        if (of.price_class != slot.device.price_class) continue;
        slot.device.price_per_hour = of.run;
        slot.device.idle_prices = of.idle;
      }
    }
    stale_workers_.insert(id);
  }
}

}  // namespace outboard::gateway
