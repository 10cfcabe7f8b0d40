#include "gateway/core/fleet_view.h"

#include <algorithm>
#include <map>

#include "gateway/core/core.h"

namespace outboard::gateway {

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
    one.state = session.StateText();
    one.state_s = (now.ns - session.state_since.ns) / kSecondNs;
    one.devices = session.request.devices;
    if (!session.placement.seats.empty()) one.worker = FirstWorkerOf(session).name;
    one.bill = BillOf(id);
    if (session.billing.prices.has_value()) one.price_class = session.billing.prices->price_class;
    if (session.lease.is_running())
      one.per_hour = {session.billing.prices->Of(session.lease.use).value *
                      session.request.devices};
    if (const auto place = places.find(id); place != places.end()) one.place = place->second;
  }
  return view;
}

}  // namespace outboard::gateway
