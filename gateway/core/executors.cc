// The part of GatewayCore that knows a session's executors: which rank is where, who has attached,
// and what follows when one of them ends (G9, G16).
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gateway/core/core.h"

namespace outboard::gateway {

// ---- seats and ranks ----------------------------------------------------------------------------

const Seat* GatewayCore::Session::SeatOn(WorkerId worker) const {
  const auto seat = std::find_if(seats.begin(), seats.end(),
                                 [&](const Seat& seat) { return seat.worker == worker; });
  return seat == seats.end() ? nullptr : &*seat;
}

std::optional<GatewayCore::Session::Place> GatewayCore::Session::PlaceOf(uint32_t rank) const {
  size_t index = rank;
  for (size_t seat = 0; seat < seats.size(); index -= seats[seat++].attached.size())
    if (index < seats[seat].attached.size()) return Place{seat, index};
  return std::nullopt;
}

bool GatewayCore::Session::attached() const {
  return !seats.empty() && std::all_of(seats.begin(), seats.end(), [](const Seat& seat) {
    return std::count(seat.attached.begin(), seat.attached.end(), false) == 0;
  });
}

uint32_t GatewayCore::Session::slots_held() const {
  size_t held = 0;
  for (const Seat& seat : seats) held += seat.slots.size();
  return static_cast<uint32_t>(held);
}

uint32_t GatewayCore::FirstRankOn(const Session& session, WorkerId worker) {
  size_t rank = 0;
  for (const Seat& seat : session.seats) {
    if (seat.worker == worker) break;
    rank += seat.attached.size();
  }
  return static_cast<uint32_t>(rank);
}

std::string GatewayCore::RankText(const Session& session, uint32_t rank) const {
  const auto place = session.PlaceOf(rank);
  if (!session.is_group() || !place) return "";
  const Seat& seat = session.seats[place->seat];
  const std::string device = place->index < seat.slots.size()
                                 ? absl::StrCat("device ", seat.slots[place->index], " of ")
                                 : "";
  return absl::StrCat("rank ", rank, " of ", session.devices_wanted, " (", device,
                      workers_.at(seat.worker).name, "): ");
}

// ---- looking ------------------------------------------------------------------------------------

bool GatewayCore::IsTheClients(const SessionId& id, TenantId tenant, const Token& hash) const {
  auto it = sessions_.find(id);
  return it != sessions_.end() && it->second.tenant == tenant && it->second.resume_hash == hash;
}

bool GatewayCore::IsLive(const SessionId& id, ConnId conn, uint64_t epoch) const {
  auto it = sessions_.find(id);
  return it != sessions_.end() && it->second.state == State::kLive && it->second.conn == conn &&
         it->second.epoch == epoch;
}

bool GatewayCore::MayKeep(const SessionId& id, uint64_t seq) const {
  auto it = sessions_.find(id);
  return it != sessions_.end() && seq >= it->second.snapshot_seq;
}

bool GatewayCore::Awaits(const SessionId& id, uint32_t rank) const {
  const auto it = sessions_.find(id);
  if (it == sessions_.end()) return false;
  const Session& session = it->second;
  const auto place = session.PlaceOf(rank);
  return place && !session.seats[place->seat].attached[place->index] &&
         (session.state == State::kStarting || session.state == State::kParked);
}

bool GatewayCore::HasSeat(const SessionId& id) const {
  auto it = sessions_.find(id);
  return it != sessions_.end() && !it->second.seats.empty();
}

std::optional<WorkerId> GatewayCore::WorkerOf(const SessionId& id, uint32_t rank) const {
  if (!HasSeat(id)) return std::nullopt;
  const Session& session = sessions_.at(id);
  const auto place = session.PlaceOf(rank);
  return place ? std::optional(session.seats[place->seat].worker) : std::nullopt;
}

size_t GatewayCore::DevicesHeldOn(WorkerId id) const {
  const auto worker = workers_.find(id);
  if (worker == workers_.end()) return 0;
  const std::vector<Slot>& slots = worker->second.slots;
  return static_cast<size_t>(std::count_if(
      slots.begin(), slots.end(), [](const Slot& slot) { return slot.holder.has_value(); }));
}

size_t GatewayCore::SessionsOn(WorkerId id) const {
  return static_cast<size_t>(
      std::count_if(sessions_.begin(), sessions_.end(), [&](const auto& entry) {
        return entry.second.SeatOn(id) != nullptr;
      }));
}

bool GatewayCore::IsElsewhere(const SessionId& id, WorkerId worker) const {
  return HasSeat(id) && sessions_.at(id).SeatOn(worker) == nullptr;
}

// ---- events -------------------------------------------------------------------------------------

void GatewayCore::Handle(const ExecutorAttached& event, Out& out) {
  if (!Awaits(event.session, event.rank)) return;
  Session& session = *Find(event.session);
  const Session::Place place = *session.PlaceOf(event.rank);
  session.seats[place.seat].attached[place.index] = true;
  session.wall = event.wall;
  session.idle_since = session.attached_at = now_;
  GoLiveIfReady(session, out);
  if (session.state == State::kParked && session.snapshot_asked.has_value()) {
    session.snapshot_asked.reset();  // there was nobody to ask
    AskForSnapshot(session, out);
  }
}

bool GatewayCore::Concerns(const ExecutorGone& report) const {
  const auto it = sessions_.find(report.session);
  if (it == sessions_.end() || it->second.seats.empty()) return false;
  const Session& session = it->second;
  if (report.placement != 0 && report.placement != session.placement) return false;
  return !report.worker.has_value() || session.SeatOn(*report.worker) != nullptr;
}

// One rank's end is that of all: what the others hold is of no use without it.
void GatewayCore::Handle(const ExecutorGone& event, Out& out) {
  if (!Concerns(event)) return;
  Session* const session = Find(event.session);
  const absl::string_view why = event.why.ok() ? "the executor ended" : event.why.message();
  uint32_t rank = event.rank;  // a worker speaks of its own
  if (event.worker.has_value() && WorkerOf(event.session, rank) != event.worker)
    rank = FirstRankOn(*session, *event.worker);
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
