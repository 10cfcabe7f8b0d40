#include "gateway/data_path/graph_admission.h"

#include "compiler/ir/encoding.h"
#include "gateway/base/limits.h"
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
    if (auto it = verdicts_.find(id); it != verdicts_.end()) return it->second;
  }
  Graph graph;
  absl::Status verdict = DecodeGraph(graph, bytes, Level::kTensor).status();
  std::lock_guard lock(mutex_);
  if (verdicts_.emplace(id, verdict).second) order_.push_back(id);
  if (order_.size() > kGraphVerdictsMax) {
    verdicts_.erase(order_.front());
    order_.pop_front();
  }
  return verdict;
}

}  // namespace outboard::gateway
