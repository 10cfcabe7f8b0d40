// How fast workers exchange data with each other, by which sessions on several of them are spread.
// A worker that joins is measured with the two that joined last, one link at a time for each
// worker, since two at once would share it. Of two workers that were not measured with each other
// the slowest link of both counts.
//
// Threads: one, or under a lock.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gateway/base/worker_id.h"
#include "gateway/ledger/ids.h"

namespace outboard::gateway {

class LinkTable {
 public:
  using Pair = std::pair<WorkerId, WorkerId>;  // the first connects
  struct Speed {
    double bytes_per_s = 0;
    double message_s = 0;
  };

  // `owner`: only workers of one owner learn each other's addresses; empty: the fleet's.
  void Joined(WorkerId worker, const std::string& owner);
  void Left(WorkerId worker);
  // A link whose measurement may begin; call Begun. One that takes longer than kProbeMostNs is
  // given up.
  std::optional<Pair> Next(MonoTime now);
  void Begun(const Pair& pair, std::string id, MonoTime now);
  // What `worker` says of the measurement `id`; nothing where it was not asked for it. 0: in vain.
  void Measured(WorkerId worker, std::string_view id, Speed speed);

  // Nothing: neither has been measured with anybody.
  std::optional<Speed> Between(WorkerId a, WorkerId b) const;

  static constexpr int64_t kProbeMostNs = int64_t{30} * 1'000'000'000;
  static constexpr size_t kNeighbours = 2;

 private:
  struct Running {
    Pair pair;
    MonoTime begun;
  };
  bool IsBusy(WorkerId worker) const;

  std::vector<std::pair<WorkerId, std::string>> workers_;  // with owners, in the order of joining
  std::deque<Pair> waiting_;
  std::map<std::string, Running> running_;  // by id
  std::map<Pair, Speed> measured_;          // the lesser id first
};

}  // namespace outboard::gateway
