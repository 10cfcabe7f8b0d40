// The part of GatewayCore that knows a session's executors: which rank is where, who has attached,
// and what follows when one of them ends (G9, G16).
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gateway/core/core.h"

namespace outboard::gateway {

// ---- looking ------------------------------------------------------------------------------------

const CoreWorker& GatewayCore::FirstWorkerOf(const Session& session) const {
  return workers_.at(session.placement.seats.front().worker);
}

std::string GatewayCore::RankText(const Session& session, uint32_t rank) const {
  const auto place = session.placement.FindRank(rank);
  if (!session.request.is_group() || !place) return "";
  const Seat& seat = session.placement.seats[place->seat];
  const std::string device = place->index < seat.slots.size()
                                 ? absl::StrCat("device ", seat.slots[place->index], " of ")
                                 : "";
  return absl::StrCat("rank ", rank, " of ", session.request.devices, " (", device,
                      workers_.at(seat.worker).name, "): ");
}

bool GatewayCore::IsTheClients(const SessionId& id, TenantId tenant, const Token& hash) const {
  auto it = sessions_.find(id);
  return it != sessions_.end() && it->second.tenant == tenant &&
         it->second.client.resume_hash == hash;
}

bool GatewayCore::IsLive(const SessionId& id, ConnId conn, uint64_t epoch) const {
  auto it = sessions_.find(id);
  return it != sessions_.end() && it->second.state == State::kLive &&
         it->second.client.conn == conn && it->second.epoch == epoch;
}

bool GatewayCore::MayKeep(const SessionId& id, uint64_t seq) const {
  auto it = sessions_.find(id);
  return it != sessions_.end() && seq >= it->second.snapshot.seq;
}

bool GatewayCore::Awaits(const SessionId& id, uint32_t rank) const {
  const auto it = sessions_.find(id);
  if (it == sessions_.end()) return false;
  const Session& session = it->second;
  const auto place = session.placement.FindRank(rank);
  return place && !session.placement.seats[place->seat].attached[place->index] &&
         (session.state == State::kStarting || session.state == State::kParked);
}

bool GatewayCore::HasSeat(const SessionId& id) const {
  auto it = sessions_.find(id);
  return it != sessions_.end() && !it->second.placement.seats.empty();
}

std::optional<WorkerId> GatewayCore::WorkerOf(const SessionId& id, uint32_t rank) const {
  if (!HasSeat(id)) return std::nullopt;
  const Session& session = sessions_.at(id);
  const auto place = session.placement.FindRank(rank);
  return place ? std::optional(session.placement.seats[place->seat].worker) : std::nullopt;
}

size_t GatewayCore::DevicesHeldOn(WorkerId id) const {
  const auto worker = workers_.find(id);
  if (worker == workers_.end()) return 0;
  const std::vector<Slot>& slots = worker->second.slots;
  return static_cast<size_t>(std::count_if(
      slots.begin(), slots.end(), [](const Slot& slot) { return slot.holder.has_value(); }));
}

size_t GatewayCore::SessionsOn(WorkerId id) const {
  return static_cast<size_t>(std::count_if(
      sessions_.begin(), sessions_.end(),
      [&](const auto& entry) { return entry.second.placement.SeatOn(id) != nullptr; }));
}

bool GatewayCore::IsElsewhere(const SessionId& id, WorkerId worker) const {
  return HasSeat(id) && sessions_.at(id).placement.SeatOn(worker) == nullptr;
}

// ---- events -------------------------------------------------------------------------------------

void GatewayCore::Handle(const ExecutorAttached& event, Out& out) {
  if (!Awaits(event.session, event.rank)) return;
  Session& session = *Find(event.session);
  const Session::Placement::RankIndex place = *session.placement.FindRank(event.rank);
  session.placement.seats[place.seat].attached[place.index] = true;
  session.billing.wall = event.wall;
  session.progress.idle_since = session.placement.attached_at = now_;
  GoLiveIfReady(session, out);
  if (session.state == State::kParked && session.snapshot.awaited_since.has_value()) {
    session.snapshot.awaited_since.reset();  // there was nobody to ask
    AskForSnapshot(session, out);
  }
}

bool GatewayCore::Concerns(const ExecutorGone& report) const {
  const auto it = sessions_.find(report.session);
  if (it == sessions_.end() || it->second.placement.seats.empty()) return false;
  const Session& session = it->second;
  if (report.placement != 0 && report.placement != session.placement.number) return false;
  return !report.worker.has_value() || session.placement.SeatOn(*report.worker) != nullptr;
}

// One rank's end is that of all: what the others hold is of no use without it.
void GatewayCore::Handle(const ExecutorGone& event, Out& out) {
  if (!Concerns(event)) return;
  Session* const session = Find(event.session);
  const absl::string_view why = event.why.ok() ? "the executor ended" : event.why.message();
  uint32_t rank = event.rank;  // a worker speaks of its own
  if (event.worker.has_value() && WorkerOf(event.session, rank) != event.worker)
    rank = session->placement.FirstRankOn(*event.worker);
  const std::string of_rank = RankText(*session, rank);
  const bool device_failed = event.once_more && absl::IsInternal(event.why);
  const std::string how =
      absl::StrCat(of_rank, device_failed ? "executor ended: its device failed: " : "", why);
  if (event.crashed) return Replace(*session, how, /*ours=*/true, out);
  // A device that fails is ours. A launch that does not end may be, too; but it is the session's
  // work that decides whether it ends.
  if (event.once_more && MayTryAgain(*session, event))
    return Replace(*session, how, /*ours=*/device_failed, out);
  // Where nothing tries again nobody knows whose fault it was: for the client it is a loss.
  if (device_failed && session->is_lost_with_executor())
    return Replace(*session, how, /*ours=*/true, out);
  End(session->id,
      absl::Status(event.why.code(),
                   absl::StrCat(of_rank, why,
                                event.once_more && session->epoch > 0
                                    ? "; the session's values are gone"
                                    : "")),
      SessionRowState::kLost, LeaseEnd::kExecutorLost, out);
}

}  // namespace outboard::gateway
