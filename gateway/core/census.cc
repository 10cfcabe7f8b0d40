#include "gateway/core/census.h"

#include <algorithm>

#include "gateway/core/core.h"
#include "telemetry/metric.h"

namespace outboard::gateway {
namespace {

double Age(MonoTime now, MonoTime then) { return static_cast<double>(now.ns - then.ns) * 1e-9; }

}  // namespace

Census GatewayCore::CountAll(MonoTime now) const {
  using Label = telemetry::SessionStateLabel;
  static_assert(static_cast<int>(State::kQueued) == static_cast<int>(Label::kQueued) &&
                static_cast<int>(State::kParked) == static_cast<int>(Label::kParked) &&
                static_cast<int>(State::kStored) == static_cast<int>(Label::kStored));
  now = std::max(now, now_);
  Census census;
  for (const auto& [id, session] : sessions_) {
    ++census.by_state.at(static_cast<size_t>(session.state));
    ++census.by_tenant[session.tenant.value];
    if (queue_.Has(id))
      census.queue_oldest_s = std::max(census.queue_oldest_s, Age(now, session.state_since));
    if (session.state == State::kLive && session.recoverable && session.progress.busy)
      census.snapshot_oldest_s =
          std::max(census.snapshot_oldest_s, Age(now, session.snapshot.stored_at));
  }
  census.queued = queue_.size();
  census.workers = workers_.size();
  for (const auto& [id, worker] : workers_) {
    census.workers_set_aside += worker.set_aside;
    census.heartbeat_oldest_s = std::max(census.heartbeat_oldest_s, Age(now, worker.heard_at));
    if (!worker.set_aside)
      census.devices_out += static_cast<uint32_t>(std::count_if(
          worker.slots.begin(), worker.slots.end(),
          [](const Slot& slot) { return slot.out && !slot.holder.has_value(); }));
  }
  census.devices = devices_total();
  census.devices_busy = devices_busy();
  return census;
}

}  // namespace outboard::gateway
