// The part of GatewayCore that lets a client with another key enter a session which holds a device.
// The device is on that key's cap from then on, so the key's hold comes first; until it is there,
// and if there is none to be had, the session stays as it is, with the client that it has (G20).
//
//   (none) --ClientResume, ClientAttach/WaitsToPay--> asked for a hold
//   asked --HoldAnswered/TakeoverAnswered: too little is held--> refused
//   asked --HoldAnswered/TakeoverAnswered: enough is held--> paid
//   paid, the session starts --TakeOverIfReady, GiveHoldTo--> its client has the session
//   paid, the session is metered --TakeOverIfReady: the other key has had it for long enough, or
//             cannot pay any more, GiveLeaseTo--> its client has the session
//   asked, paid --the lease or the device goes/RepeatTakeover--> its client enters what the session
//             is then, as if it came only now
//   asked, paid --its client leaves/DropTakeover--> (none)
//   asked, paid --another client wants the session; start_ns/RefuseTakeover--> refused
#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "gateway/core/core.h"
#include "telemetry/counters.h"

namespace outboard::gateway {

namespace {

// A lease is free until its row is on disk: two keys that took turns would have that moment again
// and again. A key that was stopped for want of money takes no turns.
constexpr int64_t kTakeoverEveryNs = 10 * kSecondNs;

}  // namespace

// ---- its hold -----------------------------------------------------------------------------------

// True: the client waits for its key's hold. False: it may enter now.
bool GatewayCore::WaitsToPay(Session& session, Takeover wants, Out& out) {
  if (session.placement.slots_held() == 0) return false;
  // Also by a client with the session's own key: of all that want the session the last one counts.
  RefuseTakeover(session, absl::AbortedError("another client entered the session"), out);
  if (session.hold.key_id == wants.key_id) return false;
  // Behind the current lease, or the one that the session is starting for.
  wants.lease = {session.id, session.lease.grant + (session.lease.for_devices ? 1 : 2)};
  // The session may ask for more meanwhile: its answers and this one have numbers of one count.
  wants.number = ++session.hold.last_number;
  wants.since = now_;
  out.push_back(TakeHold{
      wants.number,
      {.lease = wants.lease,
       .tenant = session.tenant,
       .key_id = wants.key_id,
       .prices_per_hour = std::vector(session.placement.slots_held(), PricesFor(session).run),
       .to_ms = std::min(options_.hold_ms, kLeaseMsMax),
       .session_cap = wants.max_cost.has_value() ? wants.max_cost : session.request.max_cost,
       .is_tentative = true}});
  takeovers_[wants.conn] = session.id;
  session.takeover = std::move(wants);
  return true;
}

void GatewayCore::TakeoverAnswered(Session& session, const HoldAnswer& answer, Out& out) {
  if (answer.funded_ms >= std::min(options_.hold_ms, kHoldMsMin)) {
    session.takeover->paid = answer;
    return TakeOverIfReady(session, out);
  }
  telemetry::CountRefused(telemetry::Refusal::kCredit);
  RefuseTakeover(
      session, answer.why.ok() ? absl::InternalError("the ledger held nothing") : answer.why, out);
}

// ---- its client enters --------------------------------------------------------------------------

void GatewayCore::TakeOverIfReady(Session& session, Out& out) {
  if (!session.takeover.has_value() || !session.takeover->paid.has_value()) return;
  // Its client is refused: before anything is taken away from the one that the session has.
  if (draining_ || refused_.contains(session.tenant))
    return HandleAny(DropTakeover(session, out)->entry, out);
  if (!session.lease.for_devices) {
    const Takeover next = *DropTakeover(session, out);
    GiveHoldTo(next, session, out);
    return HandleAny(next.entry, out);
  }
  const bool is_too_soon =
      session.billing.stopped.ok() && now_.ns - session.lease.key_since.ns < kTakeoverEveryNs;
  if (!session.lease.is_written || is_too_soon) return;
  const Takeover next = *std::exchange(session.takeover, std::nullopt);
  takeovers_.erase(next.conn);
  GiveLeaseTo(next, session, out);
  const SessionId id = session.id;
  HandleAny(next.entry, out);
  // Its client is in: what it said of the session's cost counts from now on. Where less was held
  // than was asked for, what the key before had held may be there now.
  const bool asks_again = next.max_cost.has_value() || !next.paid->why.ok();
  Session* const entered = Find(id);
  if (asks_again && entered != nullptr && entered->lease.for_devices && !entered->hold.is_requested)
    AskHold(*entered, std::max(entered->hold.funded_ms, options_.hold_ms), out);
}

// Of a session that starts. No lease runs yet: the hold of the one that is to begin is given back,
// and taken again with the other key, which could pay for it a moment ago.
void GatewayCore::GiveHoldTo(const Takeover& next, Session& session, Out& out) {
  session.client.key_id = next.key_id;
  if (next.max_cost.has_value()) session.request.max_cost = next.max_cost;
  EndHoldOf(session, out);
  BeginHold(session, out);
}

// Of a session that is metered. Its lease ends, and the next one begins with what is held for it.
void GatewayCore::GiveLeaseTo(const Takeover& next, Session& session, Out& out) {
  const bool replayed = session.replay.active;
  if (replayed) EndReplay(session, out);
  EndMeter(session, session.placement.slots_held(), /*lost=*/false, LeaseEnd::kTakenOver, out);
  session.billing.stopped = absl::OkStatus();  // for want of the other key's money
  session.hold = {.lease = next.lease,
                  .key_id = next.key_id,
                  .prices = std::vector(session.placement.slots_held(), PricesFor(session).run),
                  .last_number = session.hold.last_number,
                  .requested_at = now_,
                  .may_exist = true,
                  .funded_ms = next.paid->funded_ms};
  StartLease(session, out);
  if (replayed) BeginReplay(session, out);
}

// ---- its end ------------------------------------------------------------------------------------

// Gives its hold back. Its client is not told.
std::optional<GatewayCore::Takeover> GatewayCore::DropTakeover(Session& session, Out& out) {
  std::optional<Takeover> dropped = std::exchange(session.takeover, std::nullopt);
  if (!dropped.has_value()) return dropped;
  takeovers_.erase(dropped->conn);
  out.push_back(EndHold{dropped->lease});
  return dropped;
}

// Whether this connection waited for one; it does no more.
bool GatewayCore::DropTakeover(ConnId conn, Out& out) {
  const auto at = takeovers_.find(conn);
  if (at == takeovers_.end()) return false;
  DropTakeover(sessions_.at(at->second), out);
  return true;
}

void GatewayCore::RefuseTakeover(Session& session, absl::Status why, Out& out) {
  if (const std::optional<Takeover> refused = DropTakeover(session, out))
    out.push_back(EndClient{.conn = refused->conn, .why = std::move(why), .is_kept = true});
}

// What it waited behind has ended. Who knows what the session is by the end of this event: its
// client enters that.
void GatewayCore::RepeatTakeover(Session& session, Out& out) {
  if (std::optional<Takeover> repeated = DropTakeover(session, out))
    entries_to_repeat_.push_back(std::move(repeated->entry));
}

void GatewayCore::RepeatEntries(Out& out) {
  while (!entries_to_repeat_.empty()) {
    const Event entry = std::move(entries_to_repeat_.back());
    entries_to_repeat_.pop_back();
    HandleAny(entry, out);
  }
}

}  // namespace outboard::gateway
