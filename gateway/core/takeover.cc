// The part of GatewayCore that lets a client with another key enter a session which holds a device:
// the device is on that key's cap from then on, so nothing changes before its hold is there.
//
//   ClientResume, ClientAttach/WaitsToPay --TakeHold--> waiting, and the session goes on as it was
//   waiting --HoldAnswered/TakeoverAnswered--> paid; or it is refused, and nothing changes
//   paid --the current lease is old enough/TakeOverIfReady--> that lease ends, the new one
//             begins, and the client enters as if the key had been its own
//   waiting, paid --the session's lease ends/HandleAgain--> as if it came only now
//   waiting, paid --its client leaves, another one wants the session, start_ns/EndTakeover-->
//             (none)
#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "gateway/core/core.h"
#include "telemetry/counters.h"

namespace outboard::gateway {

namespace {

// A lease is free until its row is on disk: two keys that took turns would have that moment again
// and again.
constexpr int64_t kTakeoverEveryNs = 10 * kSecondNs;

ConnId ConnOf(const std::variant<ClientResume, ClientAttach>& wants) {
  return std::visit([](const auto& event) { return event.conn; }, wants);
}

}  // namespace

// True: it waits, or the session has been told of it.
bool GatewayCore::WaitsToPay(Session& session, const Entry& wants, Out& out) {
  const auto [conn, key_id, max_cost] = std::visit(
      [](const auto& event) { return std::tuple(event.conn, event.key_id, event.max_cost); },
      wants);
  if (!session.metered) return false;
  // Also one with the key that it has: of all that want the session the last one counts.
  EndTakeover(session, absl::AbortedError("another client entered the session"), out);
  if (session.funds.key_id == key_id) return false;
  // More of the current lease may be asked for meanwhile: all answers have numbers of their own.
  session.takeover = Takeover{wants, {session.id, session.grant + 1}, ++session.funds.number, now_};
  takeovers_[conn] = session.id;
  const std::vector<MicroUsd> prices(session.slots_held(), PricesFor(session).run);
  out.push_back(TakeHold{session.takeover->number,
                         {.lease = session.takeover->lease,
                          .tenant = session.tenant,
                          .key_id = key_id,
                          .prices_per_hour = prices,
                          .to_ms = std::min(options_.hold_ms, kLeaseMsMax),
                          .session_cap = max_cost.has_value() ? max_cost : session.max_cost,
                          .is_tentative = true}});
  return true;
}

// Cancels the session's waiting takeover, if there is one, and releases its hold. Its client is not
// told.
std::optional<GatewayCore::Takeover> GatewayCore::DropTakeover(Session& session, Out& out) {
  std::optional<Takeover> gone = std::exchange(session.takeover, std::nullopt);
  if (!gone.has_value()) return gone;
  takeovers_.erase(ConnOf(gone->wants));
  out.push_back(EndHold{gone->lease});
  return gone;
}

void GatewayCore::EndTakeover(Session& session, absl::Status why, Out& out) {
  const std::optional<Takeover> gone = DropTakeover(session, out);
  if (gone.has_value())
    out.push_back(EndClient{.conn = ConnOf(gone->wants), .why = std::move(why), .is_kept = true});
}

// Whether this connection waited for one; it does no more.
bool GatewayCore::DropTakeover(ConnId conn, Out& out) {
  const auto at = takeovers_.find(conn);
  if (at == takeovers_.end()) return false;
  DropTakeover(sessions_.at(at->second), out);
  return true;
}

void GatewayCore::TakeoverAnswered(Session& session, const HoldAnswer& answer, Out& out) {
  if (answer.funded_ms < std::min(options_.hold_ms, kHoldMsMin)) {
    telemetry::CountRefused(telemetry::Refusal::kCredit);
    return EndTakeover(
        session, answer.why.ok() ? absl::InternalError("the ledger held nothing") : answer.why,
        out);
  }
  session.takeover->paid = answer;
  TakeOverIfReady(session, out);
}

void GatewayCore::TakeOverIfReady(Session& session, Out& out) {
  if (!session.takeover.has_value() || !session.takeover->paid.has_value()) return;
  // What may refuse its client does so before the old lease ends.
  if (draining_ || refused_.contains(session.tenant)) {
    const Takeover gone = *DropTakeover(session, out);
    return std::visit([&](const auto& event) { Handle(event, out); }, gone.wants);
  }
  if (!session.is_written || now_.ns - session.leased.ns < kTakeoverEveryNs) return;
  const SessionId id = session.id;
  const Takeover paid = *std::exchange(session.takeover, std::nullopt);
  takeovers_.erase(ConnOf(paid.wants));
  const bool replayed = session.replaying;
  if (replayed) EndReplay(session, out);
  EndMeter(session, session.slots_held(), /*lost=*/false, LeaseEnd::kTakenOver, out);
  session.funds = {.lease = paid.lease,
                   .key_id = std::visit([](const auto& event) { return event.key_id; }, paid.wants),
                   .prices = std::vector<MicroUsd>(session.slots_held(), PricesFor(session).run),
                   .number = session.funds.number,
                   .any = true,
                   .funded_ms = paid.paid->funded_ms,
                   .why = paid.paid->why,
                   .asked_at = now_};
  StartLease(session, out);
  if (replayed) BeginReplay(session, out);
  std::visit([&](const auto& event) { Handle(event, out); }, paid.wants);
  // Its client is in: what it said of the session's cost counts from now on.
  const bool has_cap =
      std::visit([](const auto& event) { return event.max_cost.has_value(); }, paid.wants);
  Session* const entered = Find(id);
  if (has_cap && entered != nullptr && entered->metered && !entered->funds.asked)
    AskHold(*entered, entered->funds.funded_ms, out);
}

// The lease that it was to follow has ended: its client enters what the session is now.
void GatewayCore::HandleAgain(Out& out) {
  while (!again_.empty()) {
    const Entry wants = std::move(again_.back());
    again_.pop_back();
    std::visit([&](const auto& event) { Handle(event, out); }, wants);
  }
}

}  // namespace outboard::gateway
