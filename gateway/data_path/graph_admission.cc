#include "gateway/data_path/graph_admission.h"

#include <chrono>

#include "compiler/ir/encoding.h"
#include "gateway/base/limits.h"
#include "telemetry/counters.h"
#include "wire/merkle.h"

namespace outboard::gateway {

absl::Status GraphAdmission::Check(const std::string& id, std::string_view bytes) {
  // The verdict belongs to the hash, so the hash is always computed: an id is only a claim.
  wire::Hash hash = Sha256(bytes);
  if (wire::AsBytes(hash) != id) {
    return absl::InvalidArgumentError("the graph's bytes do not match its id");
  }
  {
    std::lock_guard lock(mutex_);
    if (auto it = verdicts_.find(id); it != verdicts_.end()) {
      telemetry::CountAs(telemetry::Metric::kGraphChecks, telemetry::GraphVerdict::kKnown);
      return it->second;
    }
  }
  Graph graph;
  const auto begin = std::chrono::steady_clock::now();  // for people: nothing depends on it
  absl::Status verdict = DecodeGraph(graph, bytes, Level::kTensor).status();
  telemetry::ObserveNs(
      telemetry::Metric::kGraphCheckTime,
      std::chrono::nanoseconds(std::chrono::steady_clock::now() - begin).count());
  telemetry::CountAs(telemetry::Metric::kGraphChecks, verdict.ok()
                                                          ? telemetry::GraphVerdict::kPassed
                                                          : telemetry::GraphVerdict::kRefused);
  if (!verdict.ok()) telemetry::CountRefused(telemetry::Refusal::kGraph);
  std::lock_guard lock(mutex_);
  if (verdicts_.emplace(id, verdict).second) order_.push_back(id);
  if (order_.size() > kGraphVerdictsMax) {
    verdicts_.erase(order_.front());
    order_.pop_front();
  }
  return verdict;
}

}  // namespace outboard::gateway
