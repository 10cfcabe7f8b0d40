#include "worker/plan_log.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace outboard::worker {

absl::Status PlanLog::Note(uint64_t seq, KernelVersion version) {
  const auto [known, fresh] = in_use_.try_emplace(version.kernel, version.opts);
  if (!fresh && known->second == version.opts) return absl::OkStatus();
  if (entries_.size() >= kPlanLogMax)
    return absl::ResourceExhaustedError(absl::StrCat("the session has used more than ", kPlanLogMax,
                                                     " versions of kernels, the limit"));
  known->second = version.opts;
  entries_.push_back({seq, std::move(version)});
  return absl::OkStatus();
}

}  // namespace outboard::worker
