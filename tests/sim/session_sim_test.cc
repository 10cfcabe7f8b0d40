// Sessions in a fleet that breaks: clients' connections are cut, stall and are doubled, gateway,
// workers and executors crash and come back, snapshots are lost on their way, programs are away for
// so long that their sessions are put away for the next. In every seeded world each session ends in
// order, with the values of a world without faults: S1 to S4, P1 (docs/testing.md); whatever is put
// away was saved, or had its time (G13 of gateway/core/core.cc); and its money is exact, M1 to M8
// (docs/testing.md, tests/sim/books.h). A session of several devices may end with the loss of one,
// for it has no snapshots; until then its values are those, too.
//
// OUTBOARD_SIM_SEED=n runs that world alone and prints what happened in it; OUTBOARD_SIM_SESSIONS=n
// says how many sessions to simulate.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/sim/client.h"
#include "tests/sim/gateway.h"
#include "tests/sim/worker.h"
#include "tests/sim/world.h"

namespace outboard::sim {
namespace {

constexpr int64_t kFaultsUntil = 40 * kSecond;
// Afterwards: longer than the longest of the waits that follow each other when all is lost.
constexpr int64_t kCalm = 900 * kSecond;

class Fleet {
 public:
  Fleet(uint64_t seed, Planted planted) : world_(seed), gateway_(&world_, planted) {
    const int workers = world_.OneIn(3) ? 1 : 3;
    const bool has_groups = seed % 3 == 0;  // other worlds stay what they were
    has_names_ = seed % 6 == 1;
    for (int i = 0; i < workers; ++i)
      workers_.push_back(std::make_unique<Worker>(&world_, &gateway_, absl::StrCat("worker ", i),
                                                  has_groups ? 3 : 2, planted));
    const int64_t clients = world_.Between(1, 4);
    for (int i = 0; i < clients; ++i) {
      const auto devices = static_cast<uint32_t>(has_groups ? world_.Between(1, 3) : 1);
      clients_.push_back(std::make_unique<Client>(
          &world_, &gateway_, i, static_cast<int>(world_.Between(20, 150)), devices, has_names_));
    }
    gateway_.on_shelved = [this](gateway::SessionId session, bool is_saved) {
      LookAtShelved(session, is_saved);
    };
  }

  // What was broken; "": nothing.
  std::string Run() {
    gateway_.Start();
    for (const auto& worker : workers_) worker->Start();
    for (const auto& client : clients_)
      world_.After(world_.Between(0, 2000) * kMs, [&client] { client->Start(); });
    NextFault();
    NextCredit();
    while (!Done() && world_.broken().empty() && world_.Step(kFaultsUntil + kCalm)) {
      const std::string broken = gateway_.CheckInvariants();
      if (!broken.empty()) world_.Broken(broken);
    }
    for (const auto& client : clients_)
      if (!client->done()) world_.Broken("something waits for ever: ", client->Waiting());
    Settle();
    return world_.broken();
  }
  size_t sessions() const { return clients_.size(); }
  const World& world() const { return world_; }

 private:
  bool Done() const {
    return std::all_of(clients_.begin(), clients_.end(),
                       [](const auto& client) { return client->done(); });
  }
  template <typename T>
  T& One(const std::vector<std::unique_ptr<T>>& all) {
    return *all[world_.Draw() % all.size()];
  }

  // G13.
  void LookAtShelved(gateway::SessionId session, bool is_saved) {
    std::optional<std::pair<uint64_t, uint64_t>> applied;  // by the last placement
    for (const auto& worker : workers_)
      if (const auto of_this = worker->Applied(session)) applied = std::max(applied, of_this);
    if (is_saved) {
      world_.Count("put away, saved");
      if (applied && gateway_.KeptSeq(session) < applied->second)
        world_.Broken("item ", applied->second, " is applied, and the session was put away at ",
                      gateway_.KeptSeq(session));
      return;
    }
    world_.Count("put away, not saved");
    if (!gateway_.HadTimeToSave(session))
      world_.Broken("a session was put away that had no time to save itself");
  }

  // The last writes reach the disk, and a session whose client has left gives its device back. M8.
  void Settle() {
    const int64_t until = world_.now() + 120 * kSecond;
    while (world_.broken().empty() && world_.Step(until)) {
    }
    if (world_.broken().empty()) gateway_.books().CheckAtEnd();
  }

  // Small credits, so that sessions come to the end of them again and again; in the end, enough.
  void NextCredit() {
    if (!gateway_.books().prepaid()) return;
    const bool calm = world_.now() > kFaultsUntil;
    for (int64_t tenant = 1; tenant <= Books::kAccounts; ++tenant)
      gateway_.books().Credit(tenant, calm ? 10'000'000 : world_.Between(1000, 9000));
    if (!calm) world_.After(world_.Between(2000, 12'000) * kMs, [this] { NextCredit(); });
  }

  void NextFault() {
    world_.After(world_.Between(100, 4000) * kMs, [this] {
      if (world_.now() > kFaultsUntil) return;
      Fault();
      NextFault();
    });
  }
  void Fault() {
    switch (world_.Draw() % 10) {
      case 0:
      case 1: return One(clients_).Cut();
      case 2: return One(clients_).Stall();
      case 3: return One(clients_).DialAgain();
      case 4: return One(workers_).CrashExecutor();
      case 5: return One(workers_).CutControl();
      case 6: {
        Worker& worker = One(workers_);
        if (!worker.up()) return;
        worker.Crash();
        return world_.After(world_.Between(100, 8000) * kMs, [&worker] { worker.Start(); });
      }
      case 7: {
        if (!gateway_.up()) return;
        gateway_.Crash();
        return world_.After(world_.Between(100, 5000) * kMs, [this] {
          world_.ExecutorTrace("gateway starts");
          gateway_.Start();
        });
      }
      case 8: return One(clients_).GoAway();
      default:
        if (has_names_) One(clients_).Die();
        return;
    }
  }

  World world_;
  Gateway gateway_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<std::unique_ptr<Client>> clients_;
  bool has_names_ = false;  // of clients
};

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
  std::map<std::string, int> counts;
  for (size_t sessions = 0; sessions < wanted; ++seed) {
    Fleet fleet(seed, Planted::kNone);
    const std::string broken = fleet.Run();
    ASSERT_EQ(broken, "") << fleet.world().trace() << "\nagain: OUTBOARD_SIM_SEED=" << seed
                          << " tests/session_sim_test";
    sessions += fleet.sessions();
    for (const auto& [what, count] : fleet.world().counts()) counts[what] += count;
  }
  // The worlds were bad enough.
  for (const char* what : {"resumed", "snapshot kept", "from a snapshot", "from the start", "saved",
                           "put away, saved", "slept", "refused money", "stopped",
                           "repeated for nothing", "group lost", "group ends in order",
                           "resumed after a stop", "entered", "found what was kept"}) {
    std::printf("%s: %d\n", what, counts[what]);
    EXPECT_GT(counts[what], static_cast<int>(wanted / 50)) << what;
  }
}

// The simulator is worth something if it finds what is wrong.
class PlantedBug : public ::testing::TestWithParam<std::pair<const char*, Planted>> {};
INSTANTIATE_TEST_SUITE_P(
    Each, PlantedBug,
    ::testing::Values(std::pair("AckBeforeStore", Planted::kAckBeforeStore),
                      std::pair("ReplayWithoutSeqCheck", Planted::kReplayWithoutSeqCheck),
                      std::pair("OldEpoch", Planted::kOldEpoch),
                      std::pair("LiveBeforeWritten", Planted::kLiveBeforeWritten),
                      std::pair("KeptBeforeWritten", Planted::kKeptBeforeWritten),
                      std::pair("AsksNoSnapshot", Planted::kAsksNoSnapshot),
                      std::pair("NeverWakes", Planted::kNeverWakes),
                      std::pair("PostTwice", Planted::kPostTwice),
                      std::pair("ForgetVoid", Planted::kForgetVoid),
                      std::pair("SkipFence", Planted::kSkipFence),
                      std::pair("BillReplay", Planted::kBillReplay)),
    [](const auto& info) { return std::string(info.param.first); });

TEST_P(PlantedBug, IsFound) {
  constexpr uint64_t kSeeds = 300;  // some seconds
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const std::string broken = Fleet(seed, GetParam().second).Run();
    if (broken.empty()) continue;
    std::printf("seed %llu: %s\n", static_cast<unsigned long long>(seed), broken.c_str());
    return;
  }
  FAIL() << "not found in " << kSeeds << " worlds";
}

}  // namespace
}  // namespace outboard::sim
