// What a gateway has at a moment: sessions by state, the queue, workers, devices. Read by whoever
// shows it (gateway/observe/gateway_figures.h); nothing is decided by it. Ages are in seconds.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>

namespace outboard::gateway {

struct Census {
  std::array<size_t, 7> by_state{};  // in the order of telemetry::SessionStateLabel
  std::map<int64_t, size_t> by_tenant;
  size_t queued = 0;
  double queue_oldest_s = 0;
  size_t workers = 0, workers_set_aside = 0;
  uint32_t devices = 0, devices_busy = 0, devices_out = 0;
  double heartbeat_oldest_s = 0;
  double snapshot_oldest_s = 0;  // of sessions that are live, recoverable and working
};

}  // namespace outboard::gateway
