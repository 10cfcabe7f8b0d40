// The part of GatewayCore that money depends on: when the meter runs, and what it has counted (G3).
#include <utility>

#include "gateway/core/core.h"
#include "telemetry/counters.h"

namespace outboard::gateway {

namespace {

telemetry::LeaseEndLabel LabelOf(LeaseEnd end) {
  using Label = telemetry::LeaseEndLabel;
  switch (end) {
    case LeaseEnd::kClosed: return Label::kClosed;
    case LeaseEnd::kIdle: return Label::kIdle;
    case LeaseEnd::kAbandoned: return Label::kAbandoned;
    case LeaseEnd::kRefused: return Label::kRefused;
    case LeaseEnd::kExecutorLost: return Label::kExecutorLost;
    case LeaseEnd::kWorkerLost: return Label::kWorkerLost;
    case LeaseEnd::kNoDevice: return Label::kNoDevice;
    case LeaseEnd::kNoCredit: return Label::kNoCredit;
    case LeaseEnd::kGatewayStopped: return Label::kGatewayStopped;
    case LeaseEnd::kGatewayRestarted:
    case LeaseEnd::kNotWritten:
    case LeaseEnd::kHeld:
    case LeaseEnd::kRunsAgain:
    case LeaseEnd::kPutAway:
    case LeaseEnd::kResumed:
    case LeaseEnd::kTakenOver:
    case LeaseEnd::kGatewayFault:
    case LeaseEnd::kWorkerDrained: return Label::kOther;
  }
  return Label::kOther;
}

}  // namespace

void GatewayCore::StartLease(Session& session, Out& out) {
  // Time on a machine of one's own costs nothing, and gives none for nothing elsewhere.
  if (session.billing.was_on_own()) session.replay.billed_ms_at_snapshot = session.billing.past.ms;
  session.billing.prices = PricesFor(session);
  GrantPaused(session, UseState::kRun, session.placement.slots_held(), out);
  session.lease.key_since = now_;
  session.lease.for_devices = true;
}

// Grants are counted here, as the rows count them: one for each lease that began.
void GatewayCore::GrantPaused(Session& session, UseState use, uint32_t devices, Out& out) {
  const LeaseId lease{session.id, ++session.lease.grant};
  for (uint32_t device = 0; device < devices; ++device) {
    // Cannot fail for a fresh grant but for the meter's own limit; then the session is not billed,
    // which is our loss. It is paused until LeaseWritten.
    meter_
        .Grant({{lease, device},
                session.tenant,
                session.billing.prices->Of(use),
                session.billing.wall,
                session.hold.funded_ms,
                use},
               now_)
        .IgnoreError();
    meter_.Pause({lease, device}, PauseReason::kUnwritten, now_).status().IgnoreError();
  }
  session.lease.is_written = false;
  session.lease.use = use;
  session.lease.began_at = now_;
  telemetry::Count(telemetry::Metric::kGrants);
  const WorkerId worker =
      session.placement.seats.empty() ? WorkerId{} : session.placement.seats.front().worker;
  const bool is_at_default = use == UseState::kStored &&
                             session.billing.prices->price_class == kOwnMachines &&
                             default_class_.has_value();
  // Its hold is there, or is asked for next.
  const std::string& key_id = session.hold.may_exist ? session.hold.key_id : session.client.key_id;
  out.push_back(
      BeginLease{lease, session.tenant, devices, worker, use, key_id,
                 is_at_default ? default_class_->price_class : session.billing.prices->price_class,
                 session.placement.seats, now_});
}

// The meter starts. The driver tells the worker of the lease at the same moment, and lets a client
// that waits for it begin.
void GatewayCore::Handle(const LeaseWritten& event, Out&) {
  Session* const session = Find(event.lease.session);
  if (session == nullptr || event.lease.grant != session->lease.grant || session->lease.is_written)
    return;
  if (!session->lease.is_running()) return;
  session->lease.is_written = true;
  if (session->lease.use == UseState::kRun) session->progress.idle_since = now_;
  if (session->replay.active) session->replay.since = session->replay.busy_at = now_;
  const uint32_t devices =
      session->lease.for_state ? session->request.devices : session->placement.slots_held();
  for (uint32_t device = 0; device < devices; ++device)  // there is nothing to charge yet
    meter_.Resume({event.lease, device}, PauseReason::kUnwritten, now_).status().IgnoreError();
}

// A gateway that takes over from this one would not know what it has.
void GatewayCore::Handle(const RowNotWritten& event, Out& out) {
  if (Find(event.session) == nullptr) return;
  telemetry::CountRefused(telemetry::Refusal::kLedger);
  End(event.session,
      absl::InternalError("the gateway could not write down this session, so it has ended; nothing "
                          "is charged for what was not written, and its operator has been told"),
      SessionRowState::kLost, LeaseEnd::kNotWritten, out);
}

void GatewayCore::EndMeter(Session& session, uint32_t devices, bool lost, LeaseEnd why, Out& out) {
  RepeatTakeover(session, out);
  const LeaseId lease{session.id, session.lease.grant};
  std::vector<Charge> charges;
  for (uint32_t i = 0; i < devices; ++i) {
    LeasedDevice device{lease, i};
    auto more = lost ? meter_.Lose(device) : meter_.Release(device, now_);
    if (more.ok()) session.billing.Add(*more, charges);
  }
  session.billing.past = session.billing.charged;
  telemetry::CountAs(telemetry::Metric::kLeasesEnded, LabelOf(why));
  if (HoldsDevice(session.lease.use))
    telemetry::ObserveNs(telemetry::Metric::kLeaseTime, now_.ns - session.lease.began_at.ns);
  PostCharges(std::move(charges), out);
  EndHoldOf(session, out);
  out.push_back(EndLease{lease, why, session.lease.use, session.placement.seats});
}

// Its devices are free for others, and its lease ends, be it of them or of its state alone. `lost`:
// what was not confirmed of it is not charged.
void GatewayCore::ReleaseDevices(Session& session, bool lost, LeaseEnd why, Out& out) {
  for (const Seat& seat : session.placement.seats) {
    if (auto it = workers_.find(seat.worker); it != workers_.end()) {
      lost |= it->second.superseded;
      for (uint32_t i : seat.slots) it->second.slots[i].holder = std::nullopt;
    }
  }
  const uint32_t devices = session.placement.slots_held();
  RepeatTakeover(session, out);
  if (devices > 0 && !IsOnOwn(session)) queue_.Gave(session.tenant, devices, now_);
  Touch(session);
  EndStateLease(session, lost, why, out);
  if (session.lease.for_devices) {
    EndMeter(session, devices, lost, why, out);
    if (std::exchange(session.replay.active, false) && session.lease.is_written)
      session.replay.free_ns += now_.ns - session.replay.since.ns;
    session.lease.for_devices = false;
  }
  EndHoldOf(session, out);
  for (Seat& seat : session.placement.seats) seat.slots.clear();
}

const DeviceSlot& GatewayCore::DeviceAt(const Seat& seat, size_t i) const {
  return workers_.at(seat.worker).slots.at(seat.slots.at(i)).device;
}

// All devices of a session are of one class. One from before there were classes keeps its price,
// but not on a machine of its own.
GatewayCore::Session::Prices GatewayCore::PricesFor(const Session& session) const {
  const DeviceSlot& device = DeviceAt(session.placement.seats.front(), 0);
  const bool is_frozen =
      session.billing.prices.has_value() &&
      (session.billing.prices->price_class == device.price_class ||
       (session.billing.prices->price_class.empty() && device.price_class != kOwnMachines));
  if (is_frozen) return *session.billing.prices;
  Session::Prices prices{device.price_class, device.price_per_hour, device.idle_prices};
  // The machine is the account's own, the gateway's disk is not.
  if (prices.price_class == kOwnMachines && default_class_.has_value())
    prices.idle.stored = default_class_->idle.stored;
  return prices;
}

void GatewayCore::PostCharges(std::vector<Charge> charges, Out& out) {
  if (!charges.empty()) out.push_back(Post{std::move(charges)});
}

bool GatewayCore::IsWritten(const LeaseId& lease) const {
  const auto it = sessions_.find(lease.session);
  if (it == sessions_.end()) return false;
  const Session& session = it->second;
  return session.lease.is_running() && session.lease.grant == lease.grant &&
         session.lease.is_written;
}

Bill GatewayCore::BillOf(const SessionId& id) const {
  auto it = sessions_.find(id);
  if (it == sessions_.end()) return {};
  Bill bill = it->second.billing.past;
  if (it->second.lease.is_running()) {
    Meter::Reading reading = meter_.Read(LeaseId{id, it->second.lease.grant});
    if (HoldsDevice(it->second.lease.use)) bill.ms += reading.ms;
    bill.amount.value += reading.amount.value;
  }
  return bill;
}

}  // namespace outboard::gateway
