// What an engine keeps of a graph: its kernels and where their buffers lie; and the graphs of a
// session that were run lately.
//
// Threads: that of the engine.
#pragma once

#include <algorithm>
#include <list>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "compiler/ir/encoding.h"
#include "compiler/schedule/schedule.h"
#include "runtime/device.h"
#include "worker/engine/plans/kernels_in_use.h"
#include "worker/engine/plans/planned_launches.h"

namespace outboard::worker {

struct Launch {
  std::shared_ptr<KernelInUse> kernel;
  std::vector<int> buffers;  // into Schedule::buffers
  int result;                // number of the result that needs it (ResultsOf)
};

struct ExecutionPlan {
  // Without its kernels' graphs; its steps have the numbers of launches.
  schedule::Schedule schedule;
  std::vector<Launch> launches;
  int largest_temporary = kNoResult;              // number of the result that needs it (ResultsOf)
  std::unique_ptr<runtime::LaunchRecord> record;  // of the launches, if the device keeps one
  uint64_t runs = 0;                              // in a group
};

// A graph with those of its inputs that a Run gives away: results are written over them.
struct PlanKey {
  GraphId graph;
  std::vector<int64_t> donated;  // ascending

  PlanKey(const GraphId& id, std::span<const int64_t> given)
      : graph(id), donated(given.begin(), given.end()) {
    std::sort(donated.begin(), donated.end());
  }
  friend bool operator==(const PlanKey&, const PlanKey&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const PlanKey& key) {
    return H::combine(std::move(h), key.graph, key.donated);
  }
};

// The plans of a session. At most `plans_max`; the one that was not used for longest goes. The
// ranks of a group add and find the same plans in the same order, so the same one goes on all.
class KnownPlans {
 public:
  // Requires plans_max > 0.
  explicit KnownPlans(size_t plans_max) : plans_max_(plans_max) {}

  // nullptr: not known. Valid until the next Add or Clear.
  ExecutionPlan* Find(const PlanKey& key) {
    const auto found = plans_.find(key);
    if (found == plans_.end()) return nullptr;
    uses_.splice(uses_.end(), uses_, found->second.use);
    return found->second.plan.get();
  }
  ExecutionPlan* Add(const PlanKey& key, std::unique_ptr<ExecutionPlan> plan) {
    if (plans_.size() >= plans_max_) {
      plans_.erase(uses_.front());
      uses_.pop_front();
    }
    const auto use = uses_.insert(uses_.end(), key);
    return plans_.emplace(key, KnownPlan{std::move(plan), use}).first->second.plan.get();
  }
  void Clear() {
    plans_.clear();
    uses_.clear();
  }

 private:
  struct KnownPlan {
    std::unique_ptr<ExecutionPlan> plan;
    std::list<PlanKey>::iterator use;
  };
  const size_t plans_max_;
  absl::flat_hash_map<PlanKey, KnownPlan> plans_;
  std::list<PlanKey> uses_;  // the latest last
};

}  // namespace outboard::worker
