// Sessions in a fleet that breaks: clients' connections are cut, stall and are doubled, gateway,
// workers and executors crash and come back, snapshots are lost on their way, programs are away for
// so long that their sessions are put away for the next. In every seeded world each session ends in
// order, with the values of a world without faults: S1 to S4, P1 (docs/testing.md); whatever is put
// away was saved, or had its time (G13 of gateway/core/core.cc); and its money is exact, M1 to M8
// (docs/testing.md, tests/sim/books.h), also where a worker lies (W1 to W4, receipts.h), and where
// other keys want what a program has (RV1 to RV3, rival.h).
// All of this holds for sessions on several devices, too, each of whose ranks holds a state of its
// own; they alone end with their gateway.
//
// OUTBOARD_SIM_SEED=n runs that world alone and prints what happened in it; OUTBOARD_SIM_SESSIONS=n
// says how many sessions to simulate.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <string>

#include "telemetry/log.h"
#include "tests/sim/fleet.h"

namespace outboard::sim {
namespace {

// Each receipt of a liar would be a line.
class NoLog final : public ::testing::Environment {
  void SetUp() override { telemetry::StartLogging({.level = telemetry::LogLevel::kOff}); }
  void TearDown() override { telemetry::StopLogging(); }
};
[[maybe_unused]] ::testing::Environment* const kNoLog =
    ::testing::AddGlobalTestEnvironment(new NoLog);

int64_t FromEnvironment(const char* name, int64_t otherwise) {
  const char* const value = std::getenv(name);
  return value != nullptr ? std::atoll(value) : otherwise;
}

TEST(SessionSim, EverySessionEndsAsIfNothingHadBroken) {
  if (const int64_t seed = FromEnvironment("OUTBOARD_SIM_SEED", -1); seed >= 0) {
    Fleet fleet(static_cast<uint64_t>(seed), Planted::kNone);
    const std::string broken = fleet.Run();
    EXPECT_EQ(broken, "") << fleet.world().trace();
    return;
  }
  const auto wanted = static_cast<size_t>(FromEnvironment("OUTBOARD_SIM_SESSIONS", 1000));
  uint64_t seed = 1;
  int64_t events = 0;
  std::map<std::string, int> counts;
  for (size_t sessions = 0; sessions < wanted; ++seed) {
    Fleet fleet(seed, Planted::kNone);
    const std::string broken = fleet.Run();
    ASSERT_EQ(broken, "") << fleet.world().trace() << "\nagain: OUTBOARD_SIM_SEED=" << seed
                          << " tests/session_sim_test";
    sessions += fleet.sessions();
    events += fleet.world().steps();
    for (const auto& [what, count] : fleet.world().counts()) counts[what] += count;
  }
  std::printf("%llu worlds, %lld events\n", static_cast<unsigned long long>(seed - 1),
              static_cast<long long>(events));
  // The worlds were bad enough.
  for (const char* what : {"resumed", "snapshot kept", "from a snapshot", "from the start", "saved",
                           "put away, saved", "slept", "refused money", "refused by a cap",
                           "stopped", "repeated for nothing", "group taken over",
                           "group ends in order", "group from a snapshot",
                           "resumed after a stop", "entered",
                           "group entered", "found what was kept", "the clock jumps",
                           "key revoked", "gateway replaced", "taken over", "takeover refused",
                           "a stranger was refused", "resumed with another key",
                           "refused by a key's cap"}) {
    std::printf("%s: %d\n", what, counts[what]);
    EXPECT_GT(counts[what], static_cast<int>(wanted / 50)) << what;
  }
  // Few of the worlds have receipts, since each of those is signed.
  for (const char* what : {"signed for", "lies", "caught: receipt", "caught: receipt_conflict",
                           "set aside"}) {
    std::printf("%s: %d\n", what, counts[what]);
    EXPECT_GT(counts[what], static_cast<int>(wanted / 500)) << what;
  }
}

// Programs that idle, go away, crash and are killed, on workers that do, too: no lease is left, and
// the money is exact.
TEST(SessionSim, TwoHundredSessionsOverEightWorkers_LeakNothing) {
  constexpr uint64_t kNamed = 25;  // of the worlds whose programs die, and are followed by others
  Fleet fleet(kNamed, Planted::kNone,
              {.workers = 8, .clients = 200, .faults = 10, .check_every = 500});
  EXPECT_EQ(fleet.Run(), "") << fleet.world().trace();
  EXPECT_EQ(fleet.sessions(), 200u);
  for (const char* what : {"lost", "gateway lost", "died", "entered", "slept"})
    EXPECT_GT(fleet.world().counts().count(what), 0u) << what;
}

// The simulator is worth something if it finds what is wrong.
struct PlantedCase {
  PlantedCase(const char* name, Planted planted, const char* by = "")
      : name(name), planted(planted), by(by) {}
  const char* name;
  Planted planted;
  const char* by;  // the check that has to find it; "": any
};
class PlantedBug : public ::testing::TestWithParam<PlantedCase> {};
INSTANTIATE_TEST_SUITE_P(
    Each, PlantedBug,
    ::testing::Values(PlantedCase("AckBeforeStore", Planted::kAckBeforeStore),
                      PlantedCase("ReplayWithoutSeqCheck", Planted::kReplayWithoutSeqCheck),
                      PlantedCase("OldEpoch", Planted::kOldEpoch),
                      PlantedCase("LiveBeforeWritten", Planted::kLiveBeforeWritten),
                      PlantedCase("KeptBeforeWritten", Planted::kKeptBeforeWritten),
                      PlantedCase("AsksNoSnapshot", Planted::kAsksNoSnapshot),
                      PlantedCase("NeverWakes", Planted::kNeverWakes),
                      PlantedCase("PostTwice", Planted::kPostTwice),
                      PlantedCase("ForgetVoid", Planted::kForgetVoid),
                      PlantedCase("SkipFence", Planted::kSkipFence),
                      PlantedCase("BillReplay", Planted::kBillReplay, "M5: "),
                      PlantedCase("WallClock", Planted::kWallClock),
                      PlantedCase("AdmitsRevoked", Planted::kAdmitsRevoked, "K1: "),
                      PlantedCase("KeepsRevoked", Planted::kKeepsRevoked, "K2: "),
                      PlantedCase("NeverIdle", Planted::kNeverIdle, "K3: "),
                      PlantedCase("WrongLimit", Planted::kWrongLimit, "K4: "),
                      PlantedCase("AnyAccount", Planted::kAnyAccount, "K5: "),
                      PlantedCase("FirstKeyPays", Planted::kFirstKeyPays, "RV1: "),
                      PlantedCase("AnyKeyTakesWhatRuns", Planted::kAnyKeyTakesOver, "RV2: "),
                      PlantedCase("TwoWriters", Planted::kTwoWriters),
                      PlantedCase("SnapshotsDiffer", Planted::kSnapshotsDiffer),
                      PlantedCase("OldPlacement", Planted::kOldPlacement),
                      PlantedCase("FailedRankGoesOn", Planted::kFailedRankGoesOn),
                      PlantedCase("BelievesConflict", Planted::kBelievesConflict, "W2: ")),
    [](const auto& info) { return std::string(info.param.name); });

TEST_P(PlantedBug, IsFound) {
  constexpr uint64_t kSeeds = 300;  // some seconds
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const std::string broken = Fleet(seed, GetParam().planted).Run();
    if (broken.empty() || broken.find(GetParam().by) == std::string::npos) continue;
    std::printf("seed %llu: %s\n", static_cast<unsigned long long>(seed), broken.c_str());
    return;
  }
  FAIL() << "not found in " << kSeeds << " worlds";
}

}  // namespace
}  // namespace outboard::sim
