// The part of GatewayCore that money depends on: when the meter runs, and what it has counted (G3).
#include <utility>

#include "gateway/core/core.h"
#include "telemetry/counters.h"

namespace outboard::gateway {

// Grants are counted here, as the rows count them: one for each lease that began.
void GatewayCore::StartLease(Session& session, Out& out) {
  LeaseId lease{session.id, ++session.grant};
  const std::vector<MicroUsd> prices = PricesOf(session);
  for (uint32_t device = 0; device < prices.size(); ++device) {
    // Cannot fail for a fresh grant but for the meter's own limit; then the session is not billed,
    // which is our loss.
    meter_
        .Grant({{lease, device},
                session.tenant,
                prices[device],
                session.wall,
                session.funds.funded_ms},
               now_)
        .IgnoreError();
  }
  session.price = prices.front();
  session.metered = true;
  session.leased = now_;
  telemetry::Count(telemetry::Metric::kGrants);
  out.push_back(WriteLease{lease, session.tenant, session.slots_held(),
                           session.seats.front().worker, "", session.seats, now_});
}

void GatewayCore::StopLease(Session& session, bool lost, const std::string& why, Out& out) {
  for (const Seat& seat : session.seats) {
    if (auto it = workers_.find(seat.worker); it != workers_.end()) {
      for (uint32_t i : seat.slots) it->second.slots[i].holder = std::nullopt;
    }
  }
  const uint32_t devices = session.slots_held();
  if (devices > 0) queue_.Gave(session.tenant, devices, now_);
  Touch(session);
  if (session.metered) {
    LeaseId lease{session.id, session.grant};
    std::vector<Charge> charges;
    for (uint32_t i = 0; i < devices; ++i) {
      LeasedDevice device{lease, i};
      auto more = lost ? meter_.Lose(device) : meter_.Release(device, now_);
      if (more.ok()) Charged(session, *more, charges);
    }
    session.past = session.charged;
    telemetry::CountAs(telemetry::Metric::kLeasesEnded, telemetry::LeaseEndOf(why));
    telemetry::ObserveNs(telemetry::Metric::kLeaseTime, now_.ns - session.leased.ns);
    PostCharges(std::move(charges), out);
    EndHoldOf(session, out);
    if (std::exchange(session.replaying, false))
      session.replayed_ns += now_.ns - session.replay_since.ns;
    out.push_back(WriteLease{lease, session.tenant, devices, session.seats.front().worker, why,
                             session.seats, now_});
    session.metered = false;
  }
  EndHoldOf(session, out);
  for (Seat& seat : session.seats) seat.slots.clear();
}

const DeviceSlot& GatewayCore::DeviceAt(const Seat& seat, size_t i) const {
  return workers_.at(seat.worker).slots.at(seat.slots.at(i)).device;
}

std::vector<MicroUsd> GatewayCore::PricesOf(const Session& session) const {
  std::vector<MicroUsd> prices;
  for (const Seat& seat : session.seats) {
    for (size_t i = 0; i < seat.slots.size(); ++i)
      prices.push_back(session.price.value_or(DeviceAt(seat, i).price_per_hour));
  }
  return prices;
}

void GatewayCore::Charged(Session& session, const std::vector<Charge>& more,
                          std::vector<Charge>& all) {
  for (const Charge& charge : more) {
    session.charged.ms += charge.to_ms - charge.from_ms;
    session.charged.amount.value += charge.amount.value;
    all.push_back(charge);
  }
}

void GatewayCore::PostCharges(std::vector<Charge> charges, Out& out) {
  if (!charges.empty()) out.push_back(Post{std::move(charges)});
}

Bill GatewayCore::BillOf(const SessionId& id) const {
  auto it = sessions_.find(id);
  if (it == sessions_.end()) return {};
  Bill bill = it->second.past;
  if (it->second.metered) {
    Meter::Reading reading = meter_.Read(LeaseId{id, it->second.grant});
    bill.ms += reading.ms;
    bill.amount.value += reading.amount.value;
  }
  return bill;
}

}  // namespace outboard::gateway
