#include "gateway/core/fleet_view.h"

#include <algorithm>
#include <map>

#include "gateway/core/core.h"

namespace outboard::gateway {

std::string GatewayCore::StateOf(const Session& session) const {
  switch (session.state) {
    case State::kQueued: return "queued";
    case State::kStarting: return "starting";
    case State::kLive: return session.busy ? "running" : "idle";
    case State::kDetached: return "detached";
    case State::kParked:
      if (Waits(session)) return "queued";
      return session.sleeping ? "sleeping" : "parked";
    case State::kOrphaned: return "moving";
    case State::kStored: return "stored";
  }
  return "";
}

FleetView GatewayCore::Look(MonoTime now) const {
  now = std::max(now, now_);
  FleetView view;
  for (const auto& [id, worker] : workers_) {
    for (uint32_t i = 0; i < worker.slots.size(); ++i) {
      const Slot& slot = worker.slots[i];
      const char* const state = slot.out               ? "out"
                                : slot.holder          ? "held"
                                : worker.set_aside     ? "aside"
                                : worker.draining      ? "draining"
                                                       : "free";
      view.devices.push_back({worker.name, i, slot.device, slot.holder, state, worker.owner});
    }
  }
  std::map<SessionId, QueuePlace> places;
  for (const QueuePlace& place : queue_.Positions(now)) places[place.session] = place;
  for (const auto& [id, session] : sessions_) {
    SessionView& one = view.sessions.emplace_back();
    one.session = id;
    one.account = session.tenant;
    one.state = StateOf(session);
    one.state_s = (now.ns - session.since.ns) / kSecondNs;
    one.devices = session.devices_wanted;
    if (!session.seats.empty()) one.worker = workers_.at(session.seats.front().worker).name;
    one.bill = BillOf(id);
    if (session.price.has_value()) one.price_class = session.price->price_class;
    if (session.metered || session.kept)
      one.per_hour = {session.price->Of(session.use).value * session.devices_wanted};
    if (const auto place = places.find(id); place != places.end()) one.place = place->second;
  }
  return view;
}

}  // namespace outboard::gateway
