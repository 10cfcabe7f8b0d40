// What a session's parts tell of themselves. Nothing here takes an event or returns an action.
#include "gateway/core/session.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace outboard::gateway {

absl::Status CoreSession::Request::CheckShape(uint32_t other_devices,
                                              const std::vector<uint32_t>& other_mesh,
                                              const std::string& other_spread) const {
  if (other_devices != 0 && other_devices != devices)
    return absl::InvalidArgumentError(absl::StrCat(
        "the session has ", devices, " devices, and the client asks for ", other_devices));
  const auto one_axis = std::vector<uint32_t>{devices};
  const std::vector<uint32_t>& axes = mesh.empty() ? one_axis : mesh;
  if (!other_mesh.empty() && other_mesh != axes)
    return absl::InvalidArgumentError(absl::StrCat("the session's devices are a mesh of ",
                                                   absl::StrJoin(axes, " x "), ", and not of ",
                                                   absl::StrJoin(other_mesh, " x ")));
  const std::string how = spread.empty() ? std::string("auto") : spread;
  if (!other_spread.empty() && other_spread != how)
    return absl::InvalidArgumentError(absl::StrCat("the session's work is spread as \"", how,
                                                   "\", and not \"", other_spread, "\""));
  return absl::OkStatus();
}

// ---- seats and ranks ----------------------------------------------------------------------------

const Seat* CoreSession::Placement::SeatOn(WorkerId worker) const {
  const auto seat = std::find_if(seats.begin(), seats.end(),
                                 [&](const Seat& seat) { return seat.worker == worker; });
  return seat == seats.end() ? nullptr : &*seat;
}

uint32_t CoreSession::Placement::FirstRankOn(WorkerId worker) const {
  size_t rank = 0;
  for (const Seat& seat : seats) {
    if (seat.worker == worker) break;
    rank += seat.attached.size();
  }
  return static_cast<uint32_t>(rank);
}

std::optional<CoreSession::Placement::RankIndex> CoreSession::Placement::FindRank(
    uint32_t rank) const {
  size_t index = rank;
  for (size_t seat = 0; seat < seats.size(); index -= seats[seat++].attached.size())
    if (index < seats[seat].attached.size()) return RankIndex{seat, index};
  return std::nullopt;
}

bool CoreSession::Placement::is_attached() const {
  return !seats.empty() && std::all_of(seats.begin(), seats.end(), [](const Seat& seat) {
    return std::count(seat.attached.begin(), seat.attached.end(), false) == 0;
  });
}

uint32_t CoreSession::Placement::slots_held() const {
  size_t held = 0;
  for (const Seat& seat : seats) held += seat.slots.size();
  return static_cast<uint32_t>(held);
}

// ---- money --------------------------------------------------------------------------------------

// Its account can stop that machine, or have it say anything of what is done.
bool CoreSession::Billing::was_on_own() const {
  return prices.has_value() && prices->price_class == kOwnMachines;
}

void CoreSession::Billing::Add(const std::vector<Charge>& more, std::vector<Charge>& all) {
  for (const Charge& charge : more) {
    if (HoldsDevice(charge.use)) charged.ms += charge.to_ms - charge.from_ms;
    charged.amount.value += charge.amount.value;
    all.push_back(charge);
  }
}

// ---- the whole ----------------------------------------------------------------------------------

bool CoreSession::is_waiting() const {
  return state == State::kQueued || (state == State::kParked && client.is_active());
}

std::vector<MonoTime>& CoreSession::LossesLikeNow() {
  return placement.work_arrived || epoch == 0 ? losses.after_work : losses.before_work;
}

// Whoever causes an end decides what is sent under the numbers that were done: it is not free.
void CoreSession::GoBackToSnapshot(bool free) {
  if (free) replay.until_seq = std::max(replay.until_seq, progress.done_seq);
  progress.done_seq = snapshot.seq;
}

std::string CoreSession::StateText() const {
  switch (state) {
    case State::kQueued: return "queued";
    case State::kStarting: return "starting";
    case State::kLive: return progress.busy ? "running" : "idle";
    case State::kDetached: return "detached";
    case State::kParked:
      if (is_waiting()) return "queued";
      return client.asleep ? "sleeping" : "parked";
    case State::kOrphaned: return "moving";
    case State::kStored: return "stored";
  }
  return "";
}

}  // namespace outboard::gateway
