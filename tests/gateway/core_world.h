// GatewayCore under a virtual clock: tells events, checks the invariants after each, and keeps what
// it decided, by kind.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "gateway/core/core.h"

namespace outboard::gateway::test {

inline constexpr TenantId kTenant{7};

// A core with its clock, and the last actions by kind.
struct World {
  // `sleeps`: sessions without work give their devices back. Few tests say that theirs have some.
  explicit World(CoreOptions options = {}, bool sleeps = false)
      : core((options.sleep_ns = sleeps ? options.sleep_ns : 0, options)) {}

  void Tell(const Event& event) {
    actions = core.On(event, MonoTime{now_ns});
    ASSERT_EQ(core.CheckInvariants(), "");
    AnswerAll();
    history.insert(history.end(), actions.begin(), actions.end());
    for (const Action& action : actions) {
      if (const auto* post = std::get_if<Post>(&action)) {
        for (const Charge& charge : post->charges) posted_ms += charge.to_ms - charge.from_ms;
      }
    }
  }
  // As a ledger without limits and a disk without delay do, so that tests of other things see
  // neither.
  void AnswerAll() {
    for (size_t i = 0; i < actions.size(); ++i) {
      const auto* hold = std::get_if<TakeHold>(&actions[i]);
      const auto* lease = std::get_if<BeginLease>(&actions[i]);
      Event answer;
      if (hold != nullptr && !asks_money)
        answer = HoldAnswered{hold->request.lease.session, hold->number,
                              {hold->request.to_ms, absl::OkStatus()}};
      else if (lease != nullptr && !asks_disk)
        answer = LeaseWritten{lease->lease};
      else
        continue;
      for (Action& action : core.On(answer, MonoTime{now_ns}))
        actions.push_back(std::move(action));
      ASSERT_EQ(core.CheckInvariants(), "");
    }
    if (asks_money) return;
    std::erase_if(actions, [](const Action& action) {
      return std::holds_alternative<TakeHold>(action) || std::holds_alternative<EndHold>(action);
    });
  }
  void After(double seconds, const Event& event = Tick{}) {
    now_ns += static_cast<int64_t>(seconds * 1e9);
    Tell(event);
  }
  // Nobody is heard.
  void Silence(double seconds) {
    for (double t = 0; t < seconds; t += 0.5) After(0.5);
  }
  // Workers beat, so that time passes without their loss.
  void Pass(double seconds, std::vector<WorkerId> workers, std::vector<SessionId> alive = {}) {
    for (double t = 0; t < seconds; t += 1) {
      now_ns += kSecondNs;
      for (WorkerId worker : workers) Tell(WorkerHeartbeat{worker, alive});
      Tell(Tick{});
    }
  }
  template <typename T>
  const T* Get() const {
    for (const Action& action : actions) {
      if (const T* found = std::get_if<T>(&action)) return found;
    }
    return nullptr;
  }
  SessionId Open(uint64_t conn, TenantId tenant = kTenant) {
    SessionId id{0, conn};
    Tell(ClientOpen{ConnId{conn}, tenant, 1, id, Token{1, conn}, WallTime{}});
    return id;
  }
  // With a client that waits for a device for so long.
  SessionId OpenFor(double seconds, uint64_t conn, TenantId tenant = kTenant) {
    ClientOpen open{ConnId{conn}, tenant, 1, SessionId{0, conn}, Token{1, conn}, WallTime{}};
    open.queue_ns = static_cast<int64_t>(seconds * 1e9);
    Tell(open);
    return open.session;
  }
  SessionId OpenLive(uint64_t conn, TenantId tenant = kTenant) {
    SessionId id = Open(conn, tenant);
    Tell(ExecutorAttached{id, WallTime{}});
    EXPECT_NE(Get<Live>(), nullptr);
    return id;
  }
  void Join(uint64_t worker, uint32_t devices = 1, std::vector<HeldExecutor> held = {},
            bool one_account = false) {
    const std::string node = "node" + std::to_string(worker % 10);  // 11 is 1 again
    Tell(WorkerJoined{WorkerId{worker}, node + "#", std::vector<DeviceSlot>(devices), node,
                      std::move(held), one_account});
  }
  // The client `conn` comes back for the session that it opened as `opened`.
  void Resume(uint64_t conn, uint64_t opened) {
    Tell(ClientResume{ConnId{conn}, kTenant, Token{1, opened}, {}});
  }

  GatewayCore core;
  int64_t now_ns = 0;
  int64_t posted_ms = 0;
  bool asks_money = false;  // the test answers TakeHold itself
  bool asks_disk = false;   // likewise BeginLease
  std::vector<Action> actions, history;
};

}  // namespace outboard::gateway::test
