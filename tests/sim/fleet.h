// A simulated fleet in which everything breaks now and then: clients, workers, a gateway, and their
// money.
#pragma once

#include <malloc.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/sim/client.h"
#include "tests/sim/gateway.h"
#include "tests/sim/worker.h"
#include "tests/sim/world.h"

namespace outboard::sim {

inline constexpr int64_t kFaultsUntil = 40 * kSecond;
// Afterwards: longer than the longest of the waits that follow each other when all is lost.
inline constexpr int64_t kCalm = 900 * kSecond;

// Large values come and go in each world: what the allocator gave back to the kernel would be asked
// for again at once, page by page.
inline bool KeepFreedMemory() {
  return mallopt(M_MMAP_THRESHOLD, 32 << 20) == 1 && mallopt(M_TRIM_THRESHOLD, 256 << 20) == 1;
}

struct FleetSize {
  int workers = 0, clients = 0;  // 0: a few, by chance
  int faults = 1;                // at a time
  int64_t check_every = 1;       // events; with many sessions the invariants take long
};

class Fleet {
 public:
  Fleet(uint64_t seed, Planted planted, FleetSize size = {})
      : world_(seed), operator_(seed), size_(size), gateway_(&world_, planted) {
    [[maybe_unused]] static const bool keeps = KeepFreedMemory();
    const int workers = size.workers > 0 ? size.workers : world_.OneIn(3) ? 1 : 3;
    const bool has_groups = seed % 3 == 0;  // other worlds stay what they were
    // With it all of them end, so that little would be seen of what comes after.
    gateway_stays_ = has_groups && seed % 2 == 1;
    has_names_ = seed % 6 == 1 || seed % 12 == 6;  // the latter have groups
    for (int i = 0; i < workers; ++i)
      workers_.push_back(std::make_unique<Worker>(&world_, &gateway_, absl::StrCat("worker ", i),
                                                  has_groups ? 3 : 2, planted));
    if (seed % 12 == 5 || seed % 24 == 9) {
      gateway_.receipts().Begin();
      // At most one lies, so that others have its sessions.
      const int64_t liar = workers > 1 ? Between(0, workers - 1) : -1;
      for (int i = 0; i < workers; ++i)
        workers_[i]->CountLeases(i == liar ? static_cast<Lie>(Between(1, kLies - 1)) : Lie::kNone);
    }
    const int64_t clients = size.clients > 0 ? size.clients : world_.Between(1, 4);
    for (int i = 0; i < clients; ++i) {
      const auto devices = static_cast<uint32_t>(has_groups ? world_.Between(1, 3) : 1);
      clients_.push_back(std::make_unique<Client>(
          &world_, &gateway_, i, static_cast<int>(world_.Between(20, 150)), devices, has_names_));
    }
    gateway_.on_stored = [this](gateway::SessionId session, bool is_saved) {
      LookAtStored(session, is_saved);
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
    NextClockJump();
    if (Between(0, 1) == 0) NextCaps();
    if (has_names_) NextRevocation();
    if (has_names_) NextContest();
    if (!gateway_stays_ && Between(0, 2) == 0) NextReplacement();
    while (!Done() && world_.broken().empty() && world_.Step(kFaultsUntil + kCalm)) {
      if (world_.steps() % size_.check_every != 0) continue;
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
  void LookAtStored(gateway::SessionId session, bool is_saved) {
    std::optional<uint64_t> applied;  // by the last placement; those before it were replaced
    for (const auto& worker : workers_)
      if (const auto of_this = worker->Applied(session);
          of_this && of_this->first == gateway_.LastPlacement(session))
        applied = of_this->second;
    if (is_saved) {
      world_.Count("put away, saved");
      if (applied && gateway_.KeptSeq(session) < *applied)
        world_.Broken("item ", *applied, " is applied, and the session was put away at ",
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
    if (world_.broken().empty()) gateway_.receipts().CheckAtEnd();
  }

  // Small credits, so that sessions come to the end of them again and again; in the end, enough.
  void NextCredit() {
    if (!gateway_.books().prepaid()) return;
    const bool calm = world_.now() > kFaultsUntil;
    for (int64_t tenant = 1; tenant <= Books::kAccounts; ++tenant)
      gateway_.books().Credit(tenant, calm ? 10'000'000 : world_.Between(1000, 9000));
    if (!calm) world_.After(world_.Between(2000, 12'000) * kMs, [this] { NextCredit(); });
  }

  // Of chances of their own, so that other faults stay what they were.
  int64_t Between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(operator_() % static_cast<uint64_t>(high - low + 1));
  }
  // The wall clock, by up to an hour either way.
  void NextClockJump() {
    world_.After(Between(1000, 20'000) * kMs, [this] {
      if (world_.now() > kFaultsUntil) return;
      world_.Count("the clock jumps");
      world_.JumpWall(Between(-3'600'000, 3'600'000));
      NextClockJump();
    });
  }
  // Low ones, so that sessions stop and go on; in the end, none.
  void NextCaps() {
    const bool calm = world_.now() > kFaultsUntil;
    for (int64_t tenant = 1; tenant <= Books::kAccounts; ++tenant) {
      if (calm) {
        gateway_.books().SetCap(tenant, std::nullopt);
      } else if (Between(0, 1) == 0) {
        gateway_.books().SetCap(tenant, Between(1000, 9000));
      }
    }
    if (!calm) world_.After(Between(2000, 12'000) * kMs, [this] { NextCaps(); });
  }
  void NextRevocation() {
    world_.After(Between(3000, 15'000) * kMs, [this] {
      if (world_.now() > kFaultsUntil) return;
      clients_[operator_() % clients_.size()]->LoseKey();
      NextRevocation();
    });
  }

  // Another key wants a session; or its program has another one.
  void NextContest() {
    world_.After(Between(500, 3000) * kMs, [this] {
      if (world_.now() > kFaultsUntil) return;
      Client& client = *clients_[operator_() % clients_.size()];
      const int64_t cap_ms = Between(200, 5000);
      switch (Between(0, 5)) {
        case 0:
        case 1: client.Contest(RivalKey::kOther, 0); break;
        case 2: client.Contest(RivalKey::kCapped, cap_ms); break;
        case 3: client.Contest(RivalKey::kOfAnotherAccount, 0); break;
        case 4: client.ChangeKey(std::nullopt); break;
        default: client.ChangeKey(cap_ms);
      }
      NextContest();
    });
  }

  void NextReplacement() {
    world_.After(Between(3000, 25'000) * kMs, [this] {
      if (world_.now() > kFaultsUntil) return;
      if (gateway_.up()) gateway_.Replace();
      NextReplacement();
    });
  }

  void NextFault() {
    world_.After(world_.Between(100, 4000) * kMs, [this] {
      if (world_.now() > kFaultsUntil) return;
      for (int i = 0; i < size_.faults; ++i) Fault();
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
        if (!gateway_.up() || gateway_stays_) return;
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
  std::mt19937_64 operator_;
  const FleetSize size_;
  bool gateway_stays_ = false;
  Gateway gateway_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<std::unique_ptr<Client>> clients_;
  bool has_names_ = false;  // of clients
};

}  // namespace outboard::sim
