// The part of GatewayCore that stops what nobody pays for (G12): holds ahead of leases, what
// follows when no more can be held, and what is repeated at our expense.
//
// The hold of a lease
//
//   (none) --a device/BeginHold--> asked --HoldAnswered--> funded --HoldAnswered--> funded ...
//   asked --HoldAnswered: too little/Stop--> (none)
//   funded --half of a hold is left/CheckFunds, AskHold--> funded, asked
//   funded --the end is near and no more can be held/Stop--> funded, the client is told
//   any --the lease ends/ReleaseDevices, EndHoldOf--> (none)
//
// A session that was stopped gives its device back as soon as its steps in flight have ended. If
// they outlast what is held, it goes back to its last snapshot (Overrun).
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gateway/core/core.h"
#include "telemetry/counters.h"

namespace outboard::gateway {

namespace {

// A client that repeats its work sends it as soon as it hears of its new executor; one that waits
// so long does something else.
constexpr int64_t kReplayIdleNs = 10 * kSecondNs;
// What may be repeated for nothing, beyond twice the time that was charged since the snapshot: a
// new executor compiles again what the old one had.
constexpr int64_t kReplaySlackNs = 10 * kSecondNs;

// A cap, or the credit; any other reason to hold nothing is a fault of ours.
bool IsForWantOfMoney(const absl::Status& why) {
  return absl::IsResourceExhausted(why) || absl::IsFailedPrecondition(why);
}

}  // namespace

// ---- holds --------------------------------------------------------------------------------------

// Beside the start of the executor, so that nobody waits for the disk twice.
void GatewayCore::BeginHold(Session& session, Out& out) {
  const std::vector<MicroUsd> prices(session.placement.slots_held(), PricesFor(session).run);
  session.hold = {.lease = {session.id, session.lease.grant + 1},
                  .prices = prices,
                  .last_number = session.hold.last_number};
  AskHold(session, options_.hold_ms, out);
}

// For a lease that counts already, from when its hold is there.
void GatewayCore::HoldFor(Session& session, UseState use, uint32_t devices, Out& out) {
  session.hold = {.lease = {session.id, session.lease.grant},
                  .prices = std::vector<MicroUsd>(devices, session.billing.prices->Of(use)),
                  .last_number = session.hold.last_number};
  AskHold(session, HoldsDevice(use) ? options_.hold_ms : options_.state_hold_ms, out);
}

void GatewayCore::AskHold(Session& session, int64_t to_ms, Out& out) {
  Session::Hold& hold = session.hold;
  ++hold.last_number;
  if (!hold.may_exist) hold.key_id = session.client.key_id;  // later holds keep the first one's key
  hold.is_requested = hold.may_exist = true;
  hold.requested_number = hold.last_number;
  hold.requested_at = now_;
  out.push_back(TakeHold{hold.last_number,
                         {.lease = hold.lease,
                          .tenant = session.tenant,
                          .key_id = hold.key_id,
                          .prices_per_hour = hold.prices,
                          .to_ms = std::min(to_ms, kLeaseMsMax),
                          .session_cap = session.request.max_cost}});
}

void GatewayCore::EndHoldOf(Session& session, Out& out) {
  Session::Hold& hold = session.hold;
  if (hold.may_exist) out.push_back(EndHold{hold.lease});
  hold = {.last_number = hold.last_number + 1};
}

bool GatewayCore::AwaitsHold(const SessionId& id, uint64_t number) const {
  const auto it = sessions_.find(id);
  if (it == sessions_.end()) return false;
  const Session& session = it->second;
  if (session.takeover.has_value() && session.takeover->number == number) return true;
  return session.state == State::kStarting && session.hold.is_requested &&
         session.hold.requested_number == number;
}

bool GatewayCore::IsFunded(const Session& session) const {
  return session.hold.funded_ms >= std::min(options_.hold_ms, kHoldMsMin);
}

void GatewayCore::Handle(const HoldAnswered& event, Out& out) {
  Session* const session = Find(event.session);
  if (session == nullptr) return;
  if (session->takeover.has_value() && event.number == session->takeover->number)
    return TakeoverAnswered(*session, event.answer, out);
  Session::Hold& hold = session->hold;
  if (!hold.is_requested || event.number != hold.requested_number) return;
  hold.is_requested = false;
  hold.limit = event.answer.why;
  hold.funded_ms = std::max(hold.funded_ms, event.answer.funded_ms);
  if (session->lease.is_running()) {
    for (uint32_t device = 0; device < hold.prices.size(); ++device)
      meter_.Fund({hold.lease, device}, hold.funded_ms);
  } else if (const auto refused = refused_.find(session->tenant); refused != refused_.end()) {
    Stop(*session, refused->second, out);
  } else if (IsFunded(*session)) {
    GoLiveIfReady(*session, out);
  } else if (!WaitForOwn(*session, out)) {
    Stop(*session, hold.limit.ok() ? absl::InternalError("the ledger held nothing") : hold.limit,
         out);
  }
}

int64_t GatewayCore::FundsLeftNs(const Session& session) const {
  int64_t left_ns = INT64_MAX;
  for (uint32_t device = 0; device < session.hold.prices.size(); ++device)
    left_ns = std::min(left_ns, meter_.FundsLeftNs({session.hold.lease, device}, now_));
  return left_ns;
}

// While the ledger does not answer, a session goes on at our expense: it is not charged beyond what
// is held (MT3 of the meter).
void GatewayCore::CheckFunds(Session& session, Out& out) {
  const Session::Hold& hold = session.hold;
  if (session.takeover.has_value() && now_.ns - session.takeover->since.ns > options_.start_ns)
    RefuseTakeover(session, absl::UnavailableError("the gateway cannot write its ledger"), out);
  if (!session.lease.for_devices) {
    if (session.state == State::kStarting && session.placement.is_attached() && hold.is_requested &&
        now_.ns - hold.requested_at.ns > options_.start_ns)
      Stop(session, absl::UnavailableError("the gateway cannot write its ledger"), out);
    return;
  }
  CheckReplay(session, out);
  const int64_t left_ns = FundsLeftNs(session);
  if (!session.billing.stopped.ok()) {
    // What runs again after a pause, and is refused, has steps in flight that nobody was told of.
    // A session that is HELD has none, and no time that nobody pays for, unless work has come
    // since the last tick.
    const bool works = session.lease.use == UseState::kRun || session.progress.busy;
    const bool just_began = works && hold.funded_ms == 0 &&
                            now_.ns - session.lease.began_at.ns <= options_.stop_lead_ns;
    if (left_ns <= 0 && !just_began) Overrun(session, out);
    return;
  }
  const bool may_ask = !hold.is_requested &&
                       (hold.limit.ok() || now_.ns - hold.requested_at.ns > options_.ask_again_ns);
  if (may_ask && left_ns < options_.hold_ms * kNsPerMs / 2)
    AskHold(session, hold.funded_ms + options_.hold_ms, out);
  const int64_t lead_ns = std::min(options_.stop_lead_ns, hold.funded_ms * kNsPerMs / 4);
  if (!hold.limit.ok() && left_ns <= lead_ns) Stop(session, hold.limit, out);
}

// What may not rent a device any more waits for one of its own, if its account has some.
bool GatewayCore::WaitForOwn(Session& session, Out& out) {
  const bool may_move = session.epoch == 0 || session.recoverable;
  const absl::Status& why = session.hold.limit;
  if (session.state != State::kStarting || !session.client.is_connected() || !may_move ||
      !session.request.device_class.empty() || !HasOwn(session.tenant) || IsOnOwn(session) ||
      !IsForWantOfMoney(why))
    return false;
  Leave(session, LeaseEnd::kNoCredit, /*ours=*/false, out);
  session.wait.own_devices_only = true;
  session.wait.goes_first = false;
  session.state = State::kQueued;
  if (session.epoch > 0) PutRow(session, SessionRowState::kOpen, out);
  Enqueue(session, out);
  return true;
}

// Ends the client's stream and keeps the session's state for when it is paid for again.
void GatewayCore::Stop(Session& session, const absl::Status& why, Out& out) {
  telemetry::CountRefused(absl::IsUnavailable(why) ? telemetry::Refusal::kLedger
                                                   : telemetry::Refusal::kCredit);
  if (session.epoch == 0)
    return End(session.id, why, SessionRowState::kClosed, LeaseEnd::kNoCredit, out);
  session.billing.stopped = why;
  if (session.client.is_connected()) {
    out.push_back(EndClient{session.client.conn, session.id, why, BillOf(session.id),
                            session.recoverable || !IsExclusive(session)});
    LeaveClient(session, out);
  }
  if (session.state != State::kStarting) return;
  // Where a process would stay on its device, the session cannot be parked.
  IsExclusive(session) ? Overrun(session, out) : Park(session, out);
}

void GatewayCore::Overrun(Session& session, Out& out) {
  if (!session.recoverable)
    return End(session.id, session.billing.stopped, SessionRowState::kClosed, LeaseEnd::kNoCredit,
               out);
  ReleaseDevices(session, /*lost=*/false, LeaseEnd::kNoCredit, out);
  Store(session, /*ours=*/!IsForWantOfMoney(session.billing.stopped), out);
  PlaceQueue(out);
}

// Nothing of the account can be charged until an operator has looked.
void GatewayCore::Handle(const PostingRefused& event, Out& out) {
  const absl::Status why = absl::InternalError(
      "the ledger refused a posting of this account; its operator has been told, and no session of "
      "it opens until the gateway is started again");
  refused_.try_emplace(event.tenant, why);
  std::vector<SessionId> ids;
  for (const auto& [id, session] : sessions_)
    if (session.tenant == event.tenant) ids.push_back(id);
  for (const SessionId& id : ids) {
    Session* const session = Find(id);
    if (session == nullptr) continue;
    EndStateLease(*session, /*lost=*/true, LeaseEnd::kNoCredit, out);
    session->billing.state_is_unpaid = true;
    if (session->lease.for_devices || session->state == State::kStarting) Stop(*session, why, out);
  }
}

// ---- work that is repeated ----------------------------------------------------------------------

template <typename Change>
void GatewayCore::ForEachMetered(Session& session, const Change& change, Out& out) {
  std::vector<Charge> charges;
  for (uint32_t device = 0; device < session.placement.slots_held(); ++device) {
    const auto more = change(LeasedDevice{{session.id, session.lease.grant}, device});
    if (more.ok()) session.billing.Add(*more, charges);
  }
  PostCharges(std::move(charges), out);
}

void GatewayCore::BeginReplay(Session& session, Out& out) {
  if (session.replay.until_seq <= std::max(session.progress.done_seq, session.snapshot.seq)) return;
  session.replay.active = true;
  session.replay.since = session.replay.busy_at = now_;
  ForEachMetered(
      session,
      [&](const LeasedDevice& device) { return meter_.Pause(device, PauseReason::kReplay, now_); },
      out);
}

// Free until the point reached before, while the client sends what it repeats, and not for ever.
void GatewayCore::CheckReplay(Session& session, Out& out) {
  if (session.replay.until_seq == 0) return;
  if (session.progress.busy) session.replay.busy_at = now_;
  // A bill counts the time of each device, replayed_ns that of the session.
  const int64_t since_snapshot_ms =
      (BillOf(session.id).ms - session.replay.billed_ms_at_snapshot) / session.request.devices;
  const int64_t most_ns = 2 * std::max<int64_t>(0, since_snapshot_ms) * kNsPerMs + kReplaySlackNs;
  const int64_t free_ns =
      session.replay.free_ns + (session.replay.active ? now_.ns - session.replay.since.ns : 0);
  const bool over = session.progress.done_seq >= session.replay.until_seq || free_ns > most_ns;
  if (session.replay.active && (over || now_.ns - session.replay.busy_at.ns > kReplayIdleNs))
    EndReplay(session, out);
  else if (!session.replay.active && !over && session.progress.busy)
    BeginReplay(session, out);
  // What was free stays counted until the next snapshot, or each crash would begin anew.
  if (over) session.replay.until_seq = 0;
}

void GatewayCore::EndReplay(Session& session, Out& out) {
  session.replay.active = false;
  session.replay.free_ns += now_.ns - session.replay.since.ns;
  ForEachMetered(
      session,
      [&](const LeasedDevice& device) { return meter_.Resume(device, PauseReason::kReplay, now_); },
      out);
}

}  // namespace outboard::gateway
