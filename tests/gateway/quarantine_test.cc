// Workers that were set aside, in the accounts file; and what a wrong fleet secret costs.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "gateway/accounts/accounts.h"
#include "gateway/accounts/worker_quarantine.h"
#include "gateway/tls/fleet_door.h"
#include "tests/gateway/support.h"

namespace outboard::gateway::test {
namespace {

using Clock = std::chrono::steady_clock;

TEST(QuarantineRows, TheFirstReasonStays_AndEachIsLiftedByIdentityOrName) {
  TempDir dir;
  const std::string path = dir.File("outboard.db");
  ASSERT_TRUE(Accounts::Open(path).ok());  // in one file
  auto rows = ValueOrDie(QuarantineRows::Open(path));
  EXPECT_TRUE(ValueOrDie(rows->Read()).empty());
  ASSERT_TRUE(rows->Add({"aa", "gpu-1", "why", WallTime{5}}).ok());
  ASSERT_TRUE(rows->Add({"aa", "gpu-1", "again", WallTime{9}}).ok());
  ASSERT_TRUE(rows->Add({"bb", "gpu-2", "why", WallTime{3}}).ok());
  ASSERT_TRUE(rows->Add({"cc", "gpu-1", "why", WallTime{7}}).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(rows->Add({"dd", std::string(600, 'n'), "", {}})));
  auto command = ValueOrDie(QuarantineRows::Open(path));  // of another process
  const auto all = ValueOrDie(command->Read());
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0].identity, "bb");
  EXPECT_EQ(all[1].why, "why");
  EXPECT_EQ(ValueOrDie(command->Lift("gpu-1")).size(), 2u);
  EXPECT_EQ(ValueOrDie(command->Lift("nobody")).size(), 0u);
  EXPECT_EQ(ValueOrDie(rows->Read()).size(), 1u);
  EXPECT_EQ(ValueOrDie(command->Lift("bb")).size(), 1u);
  EXPECT_TRUE(ValueOrDie(rows->Read()).empty());
}

// The door, and how many answers came; refused ones are counted by code.
struct Door {
  FleetDoor door{[](std::string_view secret) {
    return secret == "right" ? absl::OkStatus() : absl::UnauthenticatedError("wrong");
  }};
  std::atomic<int> wrong{0}, busy{0};

  bool Try(const std::string& secret, const std::string& peer) {
    return door.Admit(secret, peer, [this](absl::Status why) {
      (absl::IsUnavailable(why) ? busy : wrong).fetch_add(1);
    });
  }
  void AwaitAnswers(int count) {
    const auto until = Clock::now() + std::chrono::seconds(60);
    while (wrong + busy < count && Clock::now() < until)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_EQ(wrong + busy, count);
  }
};

constexpr char kPeer[] = "ipv4:192.0.2.7:1000";

TEST(FleetDoor, TheRightSecretWaitsForNothing) {
  Door door;
  EXPECT_TRUE(door.Try("right", kPeer));
  EXPECT_EQ(door.wrong + door.busy, 0);
}

TEST(FleetDoor, AWrongSecretIsAnsweredLate_EachLaterThanTheOneBefore) {
  Door door;
  std::vector<Clock::duration> took;
  for (int i = 0; i < 4; ++i) {
    const auto begin = Clock::now();
    EXPECT_FALSE(door.Try("wrong", kPeer));
    EXPECT_EQ(door.wrong, i);  // not yet
    door.AwaitAnswers(i + 1);
    took.push_back(Clock::now() - begin);
  }
  // At least: a busy machine only makes it longer.
  for (int i = 0; i < 4; ++i)
    EXPECT_GE(took[static_cast<size_t>(i)], std::chrono::milliseconds(kWrongKeyDelayMs << i));
}

TEST(FleetDoor, AnAddressWithTooManyIsNotLookedAt_UnlessItWasRightBefore) {
  Door door;
  EXPECT_TRUE(door.Try("right", "ipv4:192.0.2.8:1"));
  for (const char* peer : {"ipv4:192.0.2.7:5", "ipv4:192.0.2.8:5"})
    for (int i = 0; i < kWrongKeysWaitingMax; ++i) EXPECT_FALSE(door.Try("wrong", peer));
  EXPECT_FALSE(door.Try("right", "ipv4:192.0.2.7:9"));
  EXPECT_EQ(door.busy, 1);
  EXPECT_TRUE(door.Try("right", "ipv4:192.0.2.8:9"));  // beside a bad one
  EXPECT_TRUE(door.Try("right", "ipv4:192.0.2.9:9"));
  door.door.Stop();  // answers at once what waits
  EXPECT_EQ(door.wrong, 2 * kWrongKeysWaitingMax);
}

}  // namespace
}  // namespace outboard::gateway::test
