// What workers tell: joined, beat, set aside, gone. The invariants are in core.cc.
#include "gateway/core/core.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "telemetry/counters.h"

namespace outboard::gateway {

void GatewayCore::Handle(const WorkerJoined& event, Out& out) {
  telemetry::Count(telemetry::Metric::kWorkerJoins);
  Worker& worker = workers_[event.worker];
  worker.name = event.name;
  worker.worker_identity = event.worker_identity;
  worker.one_account = event.one_account;
  worker.set_aside = event.set_aside;
  worker.exclusive = event.exclusive;
  worker.snapshots_when_asked = event.snapshots_when_asked;
  worker.serves_groups = event.serves_groups;
  worker.has_collectives = event.has_collectives;
  worker.groups_recover = event.groups_recover;
  worker.build = event.build;
  worker.owner = event.owner;
  worker.spans = event.serves_groups && event.spans && !event.owner.has_value();
  worker.slots.clear();
  for (const DeviceSlot& device : event.devices) worker.slots.push_back({device, std::nullopt});
  for (const uint32_t device : event.out)
    if (device < worker.slots.size()) worker.slots[device].out = true;
  for (auto& [id, other] : workers_)
    if (id != event.worker && other.worker_identity == event.worker_identity &&
        !event.worker_identity.empty())
      other.superseded = true;
  worker.heard_at = now_;
  stale_workers_.insert(event.worker);
  Welcome welcome{event.worker, {}, {}};
  for (const HeldExecutor& held : event.held) {
    if (!Adopt(held, event.worker, out)) continue;
    welcome.sessions.push_back(held);
    welcome.tenants.push_back(sessions_.at(held.session).tenant);
  }
  out.push_back(std::move(welcome));
  // A node that comes back without an executor has lost it. Another process may run there: what
  // only that executor could go on with waits for it.
  std::vector<SessionId> lost;
  for (const auto& [id, session] : sessions_) {
    if (session.state == State::kOrphaned && session.recoverable &&
        session.placement.worker_identity == event.worker_identity)
      lost.push_back(id);
  }
  for (const SessionId& id : lost)
    Replace(sessions_.at(id), absl::StrCat(event.name, " has started again"), /*ours=*/true, out);
  PlaceQueue(out);
}

void GatewayCore::Handle(const WorkerHeartbeat& event, Out& out) {
  auto it = workers_.find(event.worker);
  if (it == workers_.end()) return;
  telemetry::ObserveNs(telemetry::Metric::kHeartbeatGap, now_.ns - it->second.heard_at.ns);
  it->second.heard_at = now_;
  bool has_parked = false;
  for (size_t i = 0; i < std::min(event.alive.size(), event.memory_bytes.size()); ++i)
    if (Session* session = Find(event.alive[i]);
        session != nullptr && session->placement.SeatOn(event.worker) != nullptr) {
      session->placement.memory_bytes = event.memory_bytes[i];
      has_parked |= session->state == State::kParked;
    }
  if (it->second.superseded) return;
  std::vector<Charge> charges;
  for (const SessionId& id : event.alive) {
    Session* session = Find(id);
    if (session == nullptr) continue;
    if (!session->placement.seats.empty() &&
        session->placement.seats.front().worker == event.worker)
      ConfirmStateLease(*session, out);
    if (!session->lease.for_devices) continue;
    uint32_t device = 0;  // counts within the session
    for (const Seat& seat : session->placement.seats) {
      for (size_t i = 0; i < seat.slots.size(); ++i, ++device) {
        if (seat.worker != event.worker) continue;
        auto more = meter_.Confirm({{id, session->lease.grant}, device}, now_);
        if (more.ok()) session->billing.Add(*more, charges);
      }
    }
  }
  PostCharges(std::move(charges), out);
  // What it uses may be known only now, where it was adopted.
  if (has_parked) MakeRoomFor(event.worker, {}, nullptr, out);
}

// G11. Nobody knows since when its results were wrong: a session goes back to its last snapshot.
void GatewayCore::Handle(const WorkerSetAside& event, Out& out) {
  const auto it = workers_.find(event.worker);
  if (it == workers_.end()) return;
  it->second.set_aside = event.aside;
  stale_workers_.insert(event.worker);
  if (!event.aside) return PlaceQueue(out);
  std::vector<SessionId> moved;
  for (const auto& [id, session] : sessions_)
    if (session.placement.SeatOn(event.worker) != nullptr) moved.push_back(id);
  for (const SessionId& id : moved)
    if (Session* session = Find(id); session != nullptr)
      Replace(*session, absl::StrCat(it->second.name, " was set aside"), /*ours=*/true, out);
}

void GatewayCore::Handle(const WorkerGone& event, Out& out) {
  LoseWorker(event.worker, "its connection ended", /*may_return=*/true, out);
}

void GatewayCore::LoseWorker(WorkerId id, const std::string& why, bool may_return, Out& out) {
  auto it = workers_.find(id);
  if (it == workers_.end()) return;
  telemetry::CountAs(
      telemetry::Metric::kWorkersLost,
      may_return ? telemetry::WorkerLoss::kDisconnected : telemetry::WorkerLoss::kSilent);
  const std::string how = absl::StrCat(it->second.name, " (", why, ")");
  it->second.draining = true;  // what its sessions give back must not be given to those who wait
  stale_workers_.insert(id);
  std::vector<SessionId> lost;
  for (const auto& [session_id, session] : sessions_) {
    if (session.placement.SeatOn(id) != nullptr) lost.push_back(session_id);
  }
  for (const SessionId& session_id : lost) {
    Session& session = sessions_.at(session_id);
    // The other workers of one that is spread do not wait for this one.
    if (may_return && session.epoch > 0 && !session.placement.is_spread()) {
      Orphan(session, how, out);
    } else {
      Replace(session, absl::StrCat(RankText(session, session.placement.FirstRankOn(id)), how),
              /*ours=*/true, out);
    }
  }
  workers_.erase(id);
  stale_workers_.erase(id);
  pools_.Erase(id);
  for (auto& [tenant, warm] : warm_) std::erase(warm, id);
  std::erase_if(warm_, [](const auto& entry) { return entry.second.empty(); });
}

}  // namespace outboard::gateway
