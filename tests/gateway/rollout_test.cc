// A rollout gives nodes another image, a share at a time, and takes it back where it does not serve
// (gateway/nodes/rollout.h, U1 to U5); what operators ask of nodes; what each node boots.
#include "gateway/nodes/rollout.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <optional>

#include "gateway/nodes/power_hook.h"
#include "tests/gateway/simulated_nodes.h"

namespace outboard::gateway {
namespace {

constexpr WallTime kNow{1'764'000'000'000};
const std::string kFirst = "sha256:first", kSecond = "sha256:second";

class RolloutTest : public ::testing::Test {
 protected:
  RolloutTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "rollout-XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
    nodes_.emplace(folder_ + "/accounts.db", kNow);
    for (const std::string& image : {kFirst, kSecond})
      EXPECT_TRUE(nodes_->images().Add({.digest = image, .kernel = "6.1", .added = kNow}).ok());
  }
  ~RolloutTest() override {
    nodes_.reset();
    std::filesystem::remove_all(folder_);
  }

  static std::string Serial(int i) { return "s-" + std::to_string(i); }
  void PowerOn(int count, int sessions = 1) {
    for (int i = 0; i < count; ++i) nodes_->PowerOn(Serial(i), sessions);
    Until([&] { return nodes_->Here().size() == static_cast<size_t>(count); });
  }
  // Returns the seconds that it took.
  int Until(const std::function<bool()>& done, int most = 600) {
    int seconds = 0;
    for (; !done() && seconds < most; ++seconds) {
      const absl::Status status = nodes_->Second();
      EXPECT_TRUE(status.ok()) << status;
    }
    EXPECT_TRUE(done()) << "not within " << most << " s of virtual time";
    return seconds;
  }
  absl::Status Begin(int share_percent = 25, int within_s = 60) {
    std::map<std::string, std::string> now;
    for (const std::string& serial : nodes_->Here()) now[serial] = nodes_->ImageOf(serial);
    return nodes_->images()
        .Begin({.image = kSecond,
                .nodes = "*",
                .share_percent = share_percent,
                .within_ms = 1000 * within_s},
               now, nodes_->now())
        .status();
  }
  // One machine has tried it, as `outboard image use` and `node reboot` let it.
  void LetServe(const std::string& image) {
    EXPECT_TRUE(nodes_->images().NoteServed(image, nodes_->now()).ok());
  }
  Rollout Last() { return nodes_->images().LastRollout().value().value(); }
  int CountOf(RolloutNodeState state) {
    int count = 0;
    for (const auto& [serial, node] : Last().by_serial) count += node.state == state;
    return count;
  }

  std::string folder_;
  std::optional<SimulatedNodes> nodes_;
};

TEST_F(RolloutTest, OfAnImageThatNoNodeHasServed_IsFailedPrecondition) {
  PowerOn(2);
  const absl::Status refused = Begin();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition) << refused;
  EXPECT_NE(refused.message().find(kSecond), absl::string_view::npos) << refused;
  // One machine boots it: then it may be.
  EXPECT_TRUE(nodes_->images().Use(kSecond, "s-1", nodes_->now()).ok());
  EXPECT_EQ(nodes_->images().ChooseBoot("s-1", false)->value().image, kSecond);
  EXPECT_FALSE(nodes_->images().ChooseBoot("s-0", false)->has_value());
  nodes_->PowerOn("s-1");
  Until([&] { return nodes_->IsHere("s-1"); });
  ASSERT_TRUE(nodes_->Second().ok());
  EXPECT_TRUE(Begin().ok());
  // One at a time.
  EXPECT_EQ(Begin().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(nodes_->images().Use(kFirst, "*", nodes_->now()).code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_F(RolloutTest, WhatMakesNoSense_IsRefused) {
  PowerOn(1);
  LetServe(kSecond);
  EXPECT_EQ(Begin(0).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Begin(101).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Begin(10, 5).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(nodes_->images().Use("sha256:third", "*", kNow).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(nodes_->images().Use(kFirst, "s;", kNow).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(nodes_->images().RollBack().status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(nodes_->images()
                .Begin({.image = kSecond, .nodes = "t-*", .within_ms = 60'000},
                       {{"s-0", kFirst}}, kNow)
                .status()
                .code(),
            absl::StatusCode::kNotFound);
}

TEST_F(RolloutTest, ReachesAll_AShareAtATime_AndTheFirstAlone) {
  PowerOn(12);
  LetServe(kSecond);
  ASSERT_TRUE(Begin(/*share_percent=*/25).ok());
  int most_at_once = 0;
  bool first_was_alone = true;
  const int seconds = Until([&] {
    const int updating = CountOf(RolloutNodeState::kUpdating);
    most_at_once = std::max(most_at_once, updating);
    first_was_alone &= updating <= 1 || CountOf(RolloutNodeState::kUpdated) > 0;
    return Last().state == RolloutState::kDone;
  });
  EXPECT_EQ(most_at_once, 3);  // U1
  EXPECT_TRUE(first_was_alone);  // U2
  for (int i = 0; i < 12; ++i) EXPECT_EQ(nodes_->ImageOf(Serial(i)), kSecond);
  EXPECT_EQ(nodes_->sessions_lost(), 0);
  // Whoever starts from now on boots it, and keeps it.
  EXPECT_EQ(nodes_->images().ChooseBoot("s-new", true)->value().image, kSecond);
  EXPECT_FALSE(nodes_->images().ChooseBoot("s-3", true)->value().on_trial);
  std::printf("rollout of 12 nodes, a quarter at a time: %d s, a node in %lld s (virtual)\n",
              seconds,
              static_cast<long long>((SimulatedNodes::kDrainMs + SimulatedNodes::kBootMs) / 1000));
}

// Three broken images, and two more ways to be broken; each is taken back without hands.
struct Broken {
  const char* name;
  ImageKind kind;
  bool has_power;
  const char* why;
};
class BrokenImage : public RolloutTest, public ::testing::WithParamInterface<Broken> {};

TEST_P(BrokenImage, IsTakenBack_AndTheRolloutStops_AndNoSessionIsLost) {
  PowerOn(8);
  LetServe(kSecond);
  nodes_->SetKind(kSecond, GetParam().kind);
  if (GetParam().has_power) nodes_->AllowPowerCycles();
  ASSERT_TRUE(Begin(/*share_percent=*/50, /*within_s=*/60).ok());
  const int seconds = Until([&] { return IsSettled(Last()); });
  std::printf("rollback_s of an image that %s: %d (virtual)\n", GetParam().name, seconds);
  EXPECT_LE(seconds, 120);
  const Rollout last = Last();
  EXPECT_EQ(last.state, RolloutState::kStopped);
  EXPECT_NE(last.why.find(GetParam().why), std::string::npos) << last.why;
  // U2, U3: it met one node.
  EXPECT_EQ(CountOf(RolloutNodeState::kPending), 7);
  EXPECT_EQ(CountOf(RolloutNodeState::kTakenBack), 1);
  EXPECT_EQ(nodes_->most_away(), 8);  // at the beginning, when all were switched on
  EXPECT_EQ(nodes_->Here().size(), 8u);
  for (int i = 0; i < 8; ++i) EXPECT_EQ(nodes_->ImageOf(Serial(i)), kFirst);
  EXPECT_EQ(nodes_->sessions_lost(), 0);
}

INSTANTIATE_TEST_SUITE_P(
    Each, BrokenImage,
    ::testing::Values(Broken{"DoesNotBoot", ImageKind::kPanics, false,
                             "got no further, and is on its way back"},
                      Broken{"Hangs", ImageKind::kHangs, true,
                             "it has asked what to boot, and got no further"},
                      Broken{"DoesNotJoin", ImageKind::kDoesNotJoin, false, "s-0: it "},
                      Broken{"FailsItsTest", ImageKind::kFailsTest, false, "fails its join test"}),
    [](const auto& info) { return info.param.name; });

TEST(RolloutReasons, SayHowFarANodeCame) {
  const auto why_of = [](const NodeSeen& seen) {
    Rollout rollout{.image = kSecond, .nodes = "*", .within_ms = 60'000};
    rollout.by_serial["s-0"] = {.from = kFirst};
    Step(rollout, {{"s-0", {.is_here = true, .image = kFirst, .boot = "1"}}}, WallTime{0});
    EXPECT_EQ(rollout.by_serial["s-0"].state, RolloutNodeState::kUpdating);
    Step(rollout, {{"s-0", seen}}, WallTime{60'000});
    return rollout.why;
  };
  EXPECT_EQ(why_of({.is_here = true, .image = kFirst, .boot = "1"}),
            "s-0: it does not restart within 60 s");
  EXPECT_EQ(why_of({.image = kFirst, .boot = "1"}),
            "s-0: it has not asked what to boot within 60 s");
  EXPECT_EQ(why_of({.image = kFirst, .boot = "1", .has_asked = true}),
            "s-0: it has asked what to boot, and got no further within 60 s");
  EXPECT_EQ(why_of({.image = kSecond, .boot = "2", .has_asked = true}),
            "s-0: it has enrolled, and does not join within 60 s");
}

constexpr char kOnItsWay[] =
    "s-0: it has asked what to boot, got no further, and is on its way back";

// It is late or not: what has asked for its old image is not switched off and on on its way back.
TEST(RolloutReasons, AMachineOnItsWayBack_IsLeftAlone_UntilItIsLate) {
  Rollout rollout{.image = kSecond, .nodes = "*", .within_ms = 60'000};
  rollout.by_serial["s-0"] = {.from = kFirst};
  Step(rollout, {{"s-0", {.is_here = true, .image = kFirst, .boot = "1"}}}, WallTime{0});
  const NodeSeen seen{.image = kFirst, .boot = "1", .has_asked = true, .has_asked_again = true};
  const auto actions = Step(rollout, {{"s-0", seen}}, WallTime{30'000});
  ASSERT_EQ(actions.size(), 1u);
  EXPECT_EQ(actions[0].kind, RolloutAction::Kind::kKeepImage);
  EXPECT_EQ(rollout.state, RolloutState::kStopped);
  EXPECT_EQ(rollout.why, kOnItsWay);
  EXPECT_TRUE(Step(rollout, {{"s-0", seen}}, WallTime{149'000}).empty());
  const auto late = Step(rollout, {{"s-0", seen}}, WallTime{150'000});
  ASSERT_EQ(late.size(), 1u);
  EXPECT_EQ(late[0].kind, RolloutAction::Kind::kPowerCycle);
}

// U6: each sign once, and twice as long after each restart; then it needs hands.
TEST(RolloutReasons, AMachineThatShowsItself_GetsMoreTime_AndNotForEver) {
  Rollout rollout{.image = kSecond, .nodes = "*", .within_ms = 60'000};
  rollout.by_serial["s-0"] = {.from = kFirst, .state = RolloutNodeState::kReturning, .boot = "1"};
  rollout.state = RolloutState::kStopped;
  NodeSeen seen{.image = kFirst, .boot = "1"};
  std::vector<int> cycles;
  const auto until = [&](int from_s, int to_s) {
    for (int at_s = from_s; at_s < to_s; ++at_s)
      for (const RolloutAction& action : Step(rollout, {{"s-0", seen}}, WallTime{1000LL * at_s}))
        if (action.kind == RolloutAction::Kind::kPowerCycle) cycles.push_back(at_s);
  };
  until(0, 70);
  EXPECT_EQ(cycles, std::vector<int>({60}));
  seen.has_asked = true;  // at 70, and goes on asking
  until(70, 300);
  EXPECT_EQ(cycles, std::vector<int>({60}));
  seen.boot = "2";  // at 300 it enrols, and hangs
  until(300, 541);
  EXPECT_EQ(cycles, std::vector<int>({60, 540}));
  seen.has_asked = false;
  until(541, 601);
  EXPECT_EQ(cycles, std::vector<int>({60, 540, 600}));
  until(601, 3600);
  EXPECT_EQ(cycles.size(), 3u);
}

// --within may be shorter than a start: the power hook is not to hit a machine on its way back.
TEST_F(RolloutTest, AMachineThatStartsSlowly_IsSwitchedOffAndOnOnce) {
  PowerOn(2);
  LetServe(kSecond);
  nodes_->SetKind(kSecond, ImageKind::kHangs);
  nodes_->AllowPowerCycles();
  nodes_->SetStart(/*until_enrolled_ms=*/45'000, /*until_joined_ms=*/30'000);
  ASSERT_TRUE(Begin(50, /*within_s=*/20).ok());
  Until([&] { return IsSettled(Last()) && nodes_->Here().size() == 2; });
  EXPECT_EQ(CountOf(RolloutNodeState::kTakenBack), 1);
  EXPECT_EQ(nodes_->power_cycles(), 1);
}

TEST_F(RolloutTest, TheBootServerIsAskedTwice_AndTheRolloutKnows) {
  PowerOn(1);
  LetServe(kSecond);
  nodes_->SetKind(kSecond, ImageKind::kPanics);
  ASSERT_TRUE(Begin(100, /*within_s=*/600).ok());
  const int seconds = Until([&] { return Last().state == RolloutState::kStopped; });
  EXPECT_LT(seconds, 600);
  EXPECT_EQ(Last().why, kOnItsWay);
  Until([&] { return IsSettled(Last()); });
  EXPECT_EQ(CountOf(RolloutNodeState::kTakenBack), 1);
}

// A machine that hangs, and nobody can switch it: it is told so often, then somebody has to.
TEST_F(RolloutTest, AMachineThatNobodyCanSwitch_IsGivenUp_AndSaid) {
  PowerOn(3);
  LetServe(kSecond);
  nodes_->SetKind(kSecond, ImageKind::kHangs);
  ASSERT_TRUE(Begin(34, 10).ok());
  Until([&] { return IsSettled(Last()); });
  EXPECT_EQ(CountOf(RolloutNodeState::kReturning), 1);
  EXPECT_EQ(Last().state, RolloutState::kStopped);
  // Switched off and on by hand it boots what it had.
  nodes_->PowerOn("s-0");
  Until([&] { return nodes_->IsHere("s-0"); });
  EXPECT_EQ(nodes_->ImageOf("s-0"), kFirst);
}

TEST_F(RolloutTest, ANodeThatDoesNotRestart_StopsIt_AndKeepsItsImage) {
  PowerOn(3);
  LetServe(kSecond);
  nodes_->SetKind(kFirst, ImageKind::kDrainsForever);
  ASSERT_TRUE(Begin(34, 30).ok());
  Until([&] { return IsSettled(Last()); });
  EXPECT_NE(Last().why.find("does not restart"), std::string::npos) << Last().why;
  EXPECT_EQ(CountOf(RolloutNodeState::kTakenBack), 1);
  EXPECT_EQ(nodes_->images().ChooseBoot("s-0", true)->value().image, kFirst);
}

TEST_F(RolloutTest, Rollback_GivesAllNodesWhatTheyHad_AShareAtATime) {
  PowerOn(8);
  LetServe(kSecond);
  ASSERT_TRUE(Begin(25).ok());
  Until([&] { return Last().state == RolloutState::kDone; });
  ASSERT_TRUE(nodes_->images().RollBack().ok());
  int most_at_once = 0;
  Until([&] {
    most_at_once = std::max(most_at_once, CountOf(RolloutNodeState::kReturning));
    return Last().state == RolloutState::kRolledBack;
  });
  EXPECT_EQ(most_at_once, 2);
  for (int i = 0; i < 8; ++i) EXPECT_EQ(nodes_->ImageOf(Serial(i)), kFirst);
  EXPECT_EQ(nodes_->sessions_lost(), 0);
  // Also of those that were not there.
  EXPECT_FALSE(nodes_->images().ChooseBoot("s-new", true)->has_value());
  EXPECT_EQ(nodes_->images().RollBack().status().code(), absl::StatusCode::kNotFound);
}

TEST_F(RolloutTest, Rollback_InTheMiddle_TakesBackWhatIsUnderWay) {
  PowerOn(8);
  LetServe(kSecond);
  ASSERT_TRUE(Begin(25).ok());
  Until([&] { return CountOf(RolloutNodeState::kUpdated) >= 3; });
  ASSERT_TRUE(nodes_->images().RollBack().ok());
  Until([&] { return Last().state == RolloutState::kRolledBack; });
  Until([&] { return nodes_->Here().size() == 8; });
  for (int i = 0; i < 8; ++i) EXPECT_EQ(nodes_->ImageOf(Serial(i)), kFirst) << i;
}

TEST_F(RolloutTest, NodesThatAreAway_AreNotWaitedFor_AndBootItLater) {
  PowerOn(4);
  LetServe(kSecond);
  std::map<std::string, std::string> images_now;
  for (int i = 0; i < 6; ++i) images_now[Serial(i)] = kFirst;  // two are switched off
  ASSERT_TRUE(nodes_->images()
                  .Begin({.image = kSecond, .nodes = "s-*", .share_percent = 50,
                          .within_ms = 60'000},
                         images_now, nodes_->now())
                  .ok());
  Until([&] { return Last().state == RolloutState::kDone; });
  EXPECT_EQ(Last().why, "2 nodes were not here: they get it at their next boot");
  nodes_->PowerOn("s-5");
  Until([&] { return nodes_->IsHere("s-5"); });
  EXPECT_EQ(nodes_->ImageOf("s-5"), kSecond);
}

// The gateway is started again in the middle: the rows are all that there is of a rollout.
TEST_F(RolloutTest, OfAGatewayThatIsStartedAgain_GoesOn) {
  PowerOn(4);
  LetServe(kSecond);
  ASSERT_TRUE(Begin(50).ok());
  Until([&] { return CountOf(RolloutNodeState::kUpdating) == 1; });
  std::set<std::string> told;
  const auto again =
      NodeKeeper::Open(folder_ + "/accounts.db",
                       {.here = [&] { return nodes_->Here(); },
                        .drain = [](const std::string&) { return true; },
                        .restart = [&](const std::string& serial,
                                       const std::string&) { return told.insert(serial).second; },
                        .set_aside = [](const std::string&, const std::string&) { return true; },
                        .power_cycle = [](const std::string&) { return absl::OkStatus(); }})
          .value();
  ASSERT_TRUE(again->Tick(nodes_->now()).ok());
  EXPECT_TRUE(told.empty()) << "the one that is under way was told before";
  Until([&] { return Last().state == RolloutState::kDone; });
}

TEST(NodePattern, AStar_StandsForAnyText) {
  EXPECT_TRUE(FitsNodePattern("*", "s-1"));
  EXPECT_TRUE(FitsNodePattern("s-*", "s-1"));
  EXPECT_TRUE(FitsNodePattern("*-1*", "s-10"));
  EXPECT_TRUE(FitsNodePattern("s-1", "s-1"));
  EXPECT_FALSE(FitsNodePattern("s-1", "s-10"));
  EXPECT_FALSE(FitsNodePattern("*-2", "s-1"));
  EXPECT_FALSE(FitsNodePattern("", "s-1"));
  // Many stars are no reason to think for long.
  EXPECT_FALSE(FitsNodePattern("*a*a*a*a*a*a*a*a*b", std::string(56, 'a')));
}

TEST_F(RolloutTest, OfSeveralPatterns_TheLongestCounts) {
  ASSERT_TRUE(nodes_->images().Use(kFirst, "*", kNow).ok());
  ASSERT_TRUE(nodes_->images().Use(kSecond, "s-1*", kNow).ok());
  EXPECT_EQ(nodes_->images().ChooseBoot("s-10", true)->value().image, kSecond);
  EXPECT_EQ(nodes_->images().ChooseBoot("s-2", true)->value().image, kFirst);
}

TEST_F(RolloutTest, AnOrder_IsToldOnce_AndForgottenAfterAMinute) {
  const auto orders = NodeOrders::Open(folder_ + "/accounts.db").value();
  PowerOn(1, /*sessions=*/0);
  ASSERT_TRUE(orders->Ask({"s-0", NodeOrder::kRestart, "a test", nodes_->now()}).ok());
  ASSERT_TRUE(orders->Ask({"s-9", NodeOrder::kRestart, "a test", nodes_->now()}).ok());
  ASSERT_TRUE(nodes_->Second().ok());
  EXPECT_FALSE(nodes_->IsHere("s-0"));
  Until([&] { return nodes_->IsHere("s-0"); });
  // Once, although it is here again; and the other is not there to be told.
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(nodes_->Second().ok());
  EXPECT_TRUE(nodes_->IsHere("s-0"));
  EXPECT_EQ(orders->Pending(nodes_->now())->size(), 1u);
  EXPECT_TRUE(orders->Pending({nodes_->now().unix_ms + kOrderLifeMs})->empty());
  EXPECT_FALSE(orders->Ask({"s-0", NodeOrder::kRestart, "two\nlines", nodes_->now()}).ok());
  EXPECT_FALSE(orders->Ask({"../s", NodeOrder::kRestart, "", nodes_->now()}).ok());
}

TEST_F(RolloutTest, AJoinTest_IsRemembered_UntilTheNodeIsForgotten) {
  nodes_->SetKind(kFirst, ImageKind::kFailsTest);
  nodes_->PowerOn("s-0");
  const auto orders = NodeOrders::Open(folder_ + "/accounts.db").value();
  Until([&] { return orders->Tests()->contains("s-0"); });
  const JoinTest failed = orders->Tests()->at("s-0");
  EXPECT_FALSE(failed.passed);
  EXPECT_EQ(failed.image, kFirst);
  EXPECT_NE(failed.why.find("a product"), std::string::npos);
  EXPECT_TRUE(nodes_->Here().empty());
  ASSERT_TRUE(orders->Forget("s-0").ok());
  EXPECT_TRUE(orders->Tests()->empty());
}

TEST_F(RolloutTest, ThePowerHook_GetsTheVerbAndTheSerial_AndNoShell) {
  const std::string hook = folder_ + "/hook", said = folder_ + "/said";
  const auto write = [&](const std::string& script) {
    FILE* const file = fopen(hook.c_str(), "w");
    fputs(("#!/bin/sh\n" + script).c_str(), file);
    fclose(file);
    std::filesystem::permissions(hook, std::filesystem::perms::owner_all);
  };
  write("echo \"$1 $2 $#\" > " + said + "\n");
  EXPECT_TRUE(PowerCycle(hook, "s-1").ok());
  char text[64] = {};
  FILE* const file = fopen(said.c_str(), "r");
  ASSERT_NE(file, nullptr);
  EXPECT_NE(fgets(text, sizeof text, file), nullptr);
  fclose(file);
  EXPECT_STREQ(text, "cycle s-1 2\n");
  EXPECT_EQ(PowerCycle(hook, "s-1; reboot").code(), absl::StatusCode::kInvalidArgument);
  write("exit 3\n");
  EXPECT_EQ(PowerCycle(hook, "s-1").code(), absl::StatusCode::kUnavailable);
  write("sleep 100\n");
  EXPECT_EQ(PowerCycle(hook, "s-1", std::chrono::milliseconds(100)).code(),
            absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(PowerCycle(folder_ + "/none", "s-1").code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace outboard::gateway
