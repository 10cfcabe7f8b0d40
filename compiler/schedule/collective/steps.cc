#include "compiler/schedule/collective/steps.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "base/check.h"

namespace outboard::schedule {
namespace {

constexpr int kNone = -1;

class StepPlanner {
 public:
  StepPlanner(const std::vector<FusedKernel>& kernels, const std::vector<TransferUse>& transfers)
      : kernels_(static_cast<int>(kernels.size())),
        transfers_(transfers),
        stored_by_(transfers.size(), kNone),
        forwards_(transfers.size(), kNone),
        bucket_of_(transfers.size(), kNone),
        first_use_(transfers.size(), kernels_) {
    absl::flat_hash_map<const UOp*, int> last_store, first_load, receives;
    for (int k = 0; k < kernels_; ++k)
      for (size_t slot = 0; slot < kernels[k].buffers.size(); ++slot) {
        const UOp* const node = kernels[k].buffers[slot];
        if (slot < static_cast<size_t>(kernels[k].stores)) last_store[node] = k;
        first_load.try_emplace(node, k);
      }
    for (int t = 0; t < count(); ++t) {
      if (const auto store = last_store.find(transfers[t].sent); store != last_store.end())
        stored_by_[t] = store->second;
      if (const auto before = receives.find(transfers[t].sent); before != receives.end())
        forwards_[t] = before->second;
      receives[transfers[t].received] = t;
      if (const auto load = first_load.find(transfers[t].received); load != first_load.end())
        first_use_[t] = load->second;
    }
  }

  StepPlan Run() {
    BucketInputs();
    StartInputs(1);
    for (int k = 0; k < kernels_; ++k) {
      for (int t = 0; t < count(); ++t)
        if (first_use_[t] == k) Need(t);
      plan_.steps.push_back({ScheduledStep::Kind::kKernel, k});
      for (int t = 0; t < count(); ++t)
        if (stored_by_[t] == k) Offer(t);
      StartFull(k);
    }
    for (int t = 0; t < count(); ++t) Need(t);
    return std::move(plan_);
  }

 private:
  int count() const { return static_cast<int>(transfers_.size()); }

  int NewBucket() {
    plan_.buckets.emplace_back();
    states_.push_back(State::kOpen);
    return static_cast<int>(plan_.buckets.size()) - 1;
  }

  void Put(int transfer, int bucket) {
    plan_.buckets[bucket].push_back(transfer);
    bucket_of_[transfer] = bucket;
  }

  // Inputs that the same kernel reads first are one bucket.
  void BucketInputs() {
    std::map<std::pair<int, TransferUse::Kind>, int> buckets;
    for (int t = 0; t < count(); ++t)
      if (stored_by_[t] == kNone && forwards_[t] == kNone)
        buckets.try_emplace({first_use_[t], transfers_[t].kind}, kNone);
    for (auto& [use, bucket] : buckets) inputs_.push_back(bucket = NewBucket());
    for (int t = 0; t < count(); ++t)
      if (stored_by_[t] == kNone && forwards_[t] == kNone)
        Put(t, buckets.at({first_use_[t], transfers_[t].kind}));
  }

  // Starts inputs until `wanted` of their buckets are started in all.
  void StartInputs(size_t wanted) {
    for (; inputs_started_ < std::min(wanted, inputs_.size()); ++inputs_started_)
      Start(inputs_[inputs_started_]);
  }

  void Offer(int t) {
    const auto [open, fresh] = open_.try_emplace(transfers_[t].kind, kNone);
    if (fresh) open->second = NewBucket();
    Put(t, open->second);
    int64_t bytes = 0;
    for (const int other : plan_.buckets[open->second]) bytes += transfers_[other].bytes;
    if (bytes >= kBucketBytes) Start(open->second);
  }

  // After kernel `k`: starts the buckets that nothing more can join before they are needed. Else
  // the last gradients of a backward pass would be sent when the first kernel that reads them is
  // next, behind everything that waits for the others.
  void StartFull(int k) {
    std::vector<int> full;
    for (const auto& [kind, bucket] : open_) {
      int needed = kernels_;
      for (const int t : plan_.buckets[bucket]) needed = std::min(needed, first_use_[t]);
      bool grows = false;
      for (int t = 0; t < count() && !grows; ++t)
        grows = transfers_[t].kind == kind && stored_by_[t] > k && stored_by_[t] < needed;
      if (!grows) full.push_back(bucket);
    }
    for (const int bucket : full) Start(bucket);
  }

  void Start(int bucket) {
    OB_CHECK(states_[bucket] == State::kOpen);
    states_[bucket] = State::kStarted;
    const auto open = open_.find(transfers_[plan_.buckets[bucket][0]].kind);
    if (open != open_.end() && open->second == bucket) open_.erase(open);
    plan_.steps.push_back({ScheduledStep::Kind::kStart, bucket});
  }

  // What `t` receives is read next.
  void Need(int t) {
    if (bucket_of_[t] == kNone) {  // it sends what another one receives
      OB_CHECK(forwards_[t] != kNone);
      Need(forwards_[t]);
      Offer(t);
    }
    const int bucket = bucket_of_[t];
    if (states_[bucket] == State::kWaited) return;
    const auto input = std::find(inputs_.begin(), inputs_.end(), bucket);
    const size_t number = input - inputs_.begin();
    if (input != inputs_.end()) StartInputs(number + 1);
    if (states_[bucket] == State::kOpen) Start(bucket);
    states_[bucket] = State::kWaited;
    plan_.steps.push_back({ScheduledStep::Kind::kWait, bucket});
    if (input != inputs_.end()) StartInputs(number + 2);
  }

  enum class State { kOpen, kStarted, kWaited };

  const int kernels_;
  const std::vector<TransferUse>& transfers_;
  std::vector<int> stored_by_;  // the last kernel that stores what a transfer sends
  std::vector<int> forwards_;   // the transfer that receives what a transfer sends
  std::vector<int> bucket_of_;
  std::vector<int> first_use_;  // the first kernel that reads what it receives; else kernels_
  std::vector<State> states_;   // of buckets
  std::map<TransferUse::Kind, int> open_;  // buckets that take more
  std::vector<int> inputs_;                // buckets of inputs, by first use
  size_t inputs_started_ = 0;
  StepPlan plan_;
};

}  // namespace

StepPlan PlanSteps(const std::vector<FusedKernel>& kernels,
                   const std::vector<TransferUse>& transfers) {
  return StepPlanner(kernels, transfers).Run();
}

}  // namespace outboard::schedule
