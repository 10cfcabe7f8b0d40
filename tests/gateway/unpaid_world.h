// A core that asks for money, and is answered by the test: a worker with one device, snapshots, and
// time that passes as in a gateway's process.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "tests/gateway/core_world.h"

namespace outboard::gateway::test {

inline CoreOptions Recoverable(bool recovers = true) {
  CoreOptions options;
  options.snapshot_ns = recovers ? 30 * kSecondNs : 0;
  return options;
}

struct UnpaidWorld : World {
  explicit UnpaidWorld(bool exclusive = false, bool recovers = true)
      : World(Recoverable(recovers)) {
    WorkerJoined joined{WorkerId{1}, "w#", std::vector<DeviceSlot>(1), "node1", {}};
    joined.exclusive = exclusive;
    joined.snapshots_when_asked = true;
    Tell(joined);
    asks_money = true;
  }
  TakeHold Asked() {
    for (auto action = history.rbegin(); action != history.rend(); ++action)
      if (const auto* hold = std::get_if<TakeHold>(&*action)) return *hold;
    ADD_FAILURE() << "nobody asked for a hold";
    return {};
  }
  void Answer(const TakeHold& asked, int64_t funded_ms = kHoldMs, const absl::Status& why = {}) {
    Tell(HoldAnswered{asked.request.lease.session, asked.number, {funded_ms, why}});
  }
  SessionId OpenFunded(uint64_t conn) {
    const SessionId id = Open(conn);
    Answer(Asked());
    Tell(ExecutorAttached{id, WallTime{}});
    EXPECT_NE(Get<Live>(), nullptr);
    return id;
  }
  // As its process has it: a heartbeat and a tick each 200 ms.
  void Beat(const SessionId& id, bool busy, uint64_t done_seq) {
    now_ns += kSecondNs / 5;
    Tell(WorkerHeartbeat{WorkerId{1}, {id}});
    Tell(SessionProgress{id, busy, done_seq});
    Tell(Tick{});
  }
  void Beats(double seconds, const SessionId& id, bool busy, uint64_t done_seq) {
    for (double t = 0.1; t < seconds; t += 0.2) Beat(id, busy, done_seq);
  }
};

}  // namespace outboard::gateway::test
