// The part of GatewayCore that empties a worker which is stopped: each of its sessions saves
// itself, and goes on elsewhere.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gateway/core/core.h"
#include "telemetry/counters.h"

namespace outboard::gateway {

void GatewayCore::Handle(const WorkerDraining& event, Out& out) {
  auto it = workers_.find(event.worker);
  if (it == workers_.end()) return;
  it->second.draining = true;
  stale_workers_.insert(event.worker);
  std::vector<SessionId> here;
  for (const auto& [id, session] : sessions_)
    if (session.placement.SeatOn(event.worker) != nullptr) here.push_back(id);
  for (const SessionId& id : here) {
    Session* const session = Find(id);
    if (session == nullptr || session->placement.SeatOn(event.worker) == nullptr) continue;
    session->snapshot.awaited_since.reset();
    AskForSnapshot(*session, out);
    if (session->is_saved() || session->epoch == 0) HandOver(*session, out);
  }
}

// What the last snapshot does not include is sent again, and is free. A session that cannot begin
// again elsewhere stays until its worker ends.
void GatewayCore::HandOver(Session& session, Out& out) {
  const bool nothing_yet = session.epoch == 0;
  if (draining_ || (!nothing_yet && !session.recoverable)) return;
  for (const Seat& seat : session.placement.seats)
    if (const Worker& worker = workers_.at(seat.worker); worker.draining)
      session.losses.last_reason = absl::StrCat(worker.name, " was stopped");
  Leave(session, LeaseEnd::kWorkerDrained, /*ours=*/true, out);
  const bool waits = session.client.is_active();
  session.state = waits ? State::kQueued : State::kStored;
  if (!nothing_yet)
    PutRow(session, waits ? SessionRowState::kOpen : SessionRowState::kDetached, out);
  if (!waits) return PlaceQueue(out);
  if (!nothing_yet) {
    telemetry::Count(telemetry::Metric::kSessionsMoved);
    out.push_back(
        Moving{session.client.conn, "the worker is being stopped; the session goes on elsewhere"});
  }
  Enqueue(session, out);
}

}  // namespace outboard::gateway
