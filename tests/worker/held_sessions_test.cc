// The table of a worker's sessions (worker/supervisor/held_sessions.h), without executors: what
// Register and Heartbeat list, and when a session leaves the table.
#include "worker/supervisor/held_sessions.h"

#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace outboard::worker {
namespace {

std::unique_ptr<SessionExecutors> Session(const std::string& id, std::vector<uint32_t> devices) {
  proto::Assign assign;
  assign.set_session_id(id);
  for (const uint32_t device : devices) assign.add_devices(device);
  return std::make_unique<SessionExecutors>(assign, [](uint32_t, const absl::Status&) {});
}

std::vector<std::string> Registered(const HeldSessions& sessions) {
  proto::Register entry;
  sessions.Describe(entry);
  std::vector<std::string> ids;
  for (const proto::HeldSession& held : entry.sessions()) ids.push_back(held.session_id());
  return ids;
}

using Ids = std::vector<std::string>;

TEST(HeldSessions, OneThatHasEnded_IsNotRegistered_AndHasItsDeviceUntilItIsReaped) {
  HeldSessions sessions;
  sessions.Add("a", Session("a", {0, 1}));
  sessions.Add("b", Session("b", {2}));
  EXPECT_EQ(Registered(sessions), (Ids{"a", "b"}));
  sessions.MarkEnded("a");
  EXPECT_EQ(Registered(sessions), (Ids{"b"}));
  EXPECT_EQ(sessions.running_count(), 1u);
  EXPECT_EQ(sessions.count(), 2u);
  EXPECT_TRUE(sessions.AnyUses(1));
  sessions.Reap();
  EXPECT_EQ(sessions.count(), 1u);
  EXPECT_FALSE(sessions.AnyUses(1));
  EXPECT_TRUE(sessions.AnyUses(2));
}

// Executors may end between their start and the moment at which their session is added.
TEST(HeldSessions, OneThatEndsBeforeItIsAdded_IsReaped) {
  HeldSessions sessions;
  sessions.MarkEnded("a");
  sessions.Add("a", Session("a", {0}));
  EXPECT_EQ(sessions.running_count(), 0u);
  EXPECT_TRUE(Registered(sessions).empty());
  sessions.Reap();
  EXPECT_FALSE(sessions.Has("a"));
}

TEST(HeldSessions, OneThatIsReapedAndAssignedAgain_Runs) {
  HeldSessions sessions;
  sessions.Add("a", Session("a", {0}));
  sessions.MarkEnded("a");
  sessions.Reap();
  sessions.Add("a", Session("a", {0}));
  EXPECT_EQ(Registered(sessions), (Ids{"a"}));
  sessions.Reap();
  EXPECT_TRUE(sessions.Has("a"));
}

TEST(HeldSessions, ReleaseAllBut_KeepsThoseThatAreNamed) {
  HeldSessions sessions;
  for (const char* const id : {"a", "b", "c"}) sessions.Add(id, Session(id, {}));
  sessions.ReleaseAllBut({"b", "unknown"});
  EXPECT_EQ(Registered(sessions), (Ids{"b"}));
  sessions.Release("unknown");
  sessions.EndAll();
  EXPECT_EQ(sessions.count(), 0u);
}

TEST(HeldSessions, AHeartbeat_HasAllSessionsAndTheirMemory) {
  HeldSessions sessions;
  for (const char* const id : {"a", "b"}) sessions.Add(id, Session(id, {}));
  sessions.MarkEnded("b");
  proto::Heartbeat heartbeat;
  sessions.Describe(heartbeat);
  EXPECT_EQ(heartbeat.sessions_size(), 2);
  EXPECT_EQ(heartbeat.memory_bytes_size(), 2);
}

}  // namespace
}  // namespace outboard::worker
