#include "gateway/admission/graph_admission.h"

#include <algorithm>
#include <chrono>

#include "absl/cleanup/cleanup.h"
#include "compiler/ir/encoding.h"
#include "gateway/base/limits.h"
#include "telemetry/counters.h"
#include "wire/merkle.h"

namespace outboard::gateway {

absl::Status GraphAdmission::Check(TenantId tenant, const std::string& id,
                                   std::string_view bytes) {
  // The verdict belongs to the hash, so the hash is always computed: an id is only a claim.
  wire::Hash hash = Sha256(bytes);
  if (wire::AsBytes(hash) != id) {
    return absl::InvalidArgumentError("the graph's bytes do not match its id");
  }
  {
    std::lock_guard lock(mutex_);
    const std::map<std::string, absl::Status>& known = verdicts_[tenant].by_id;
    if (auto it = known.find(id); it != known.end()) {
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
  Verdicts& known = verdicts_[tenant];
  if (const auto [at, is_new] = known.by_id.emplace(id, verdict); is_new) {
    absl::Cleanup forget = [&, at = at] { known.by_id.erase(at); };
    known.order.push_back(id);
    std::move(forget).Cancel();
    if (++count_ > kGraphVerdictsMax) DropOldest();
  }
  return verdict;
}

bool GraphAdmission::Knows(TenantId tenant, const std::string& id) {
  std::lock_guard lock(mutex_);
  return verdicts_[tenant].by_id.contains(id);
}

void GraphAdmission::DropOldest() {
  const auto most = std::max_element(
      verdicts_.begin(), verdicts_.end(), [](const auto& a, const auto& b) {
        return a.second.order.size() < b.second.order.size();
      });
  most->second.by_id.erase(most->second.order.front());
  most->second.order.pop_front();
  --count_;
}

}  // namespace outboard::gateway
