#include "gateway/doors/account_limits.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace outboard::gateway {

absl::StatusOr<std::shared_ptr<const void>> AccountLimits::Begin(TenantId tenant, SlotKind kind) {
  const bool is_call = kind == SlotKind::kCall;
  const int limit = is_call ? options_.calls : options_.streams;
  const auto index = static_cast<size_t>(kind);
  {
    std::lock_guard lock(counts_->mutex);
    int& count = counts_->of_kind[index][tenant.value];
    if (count < limit) {
      ++count;
      // The pointer is of no use but for its end.
      return std::shared_ptr<const void>(
          static_cast<const void*>(counts_.get()), [counts = counts_, index, tenant](const void*) {
            std::lock_guard end(counts->mutex);
            const auto at = counts->of_kind[index].find(tenant.value);
            if (--at->second == 0) counts->of_kind[index].erase(at);
          });
    }
    if (count == 0) counts_->of_kind[index].erase(tenant.value);
  }
  refusals_->Count(is_call ? RefusalReason::kCallsOfAccount : RefusalReason::kStreamsOfAccount,
                   absl::StrCat("account ", tenant.value));
  return absl::UnavailableError(absl::StrCat("this account has ", limit,
                                             is_call ? " calls" : " streams",
                                             " at a time, which is the limit; try again"));
}

absl::Status AccountLimits::MayOpen(TenantId tenant, Clock::time_point now) {
  const double per_second = options_.openings_per_minute / 60.0;
  const double most = std::min(kOpeningsAtOnce, options_.openings_per_minute);
  const auto refilled = [&](const Bucket& bucket) {
    return std::min(
        most, bucket.left + per_second * std::chrono::duration<double>(now - bucket.at).count());
  };
  std::unique_lock lock(mutex_);
  if (now - forgot_at_ > std::chrono::minutes(1)) {
    std::erase_if(openings_, [&](const auto& entry) { return refilled(entry.second) >= most; });
    forgot_at_ = now;
  }
  const auto [at, is_new] = openings_.try_emplace(tenant.value, Bucket{most, now});
  Bucket& bucket = at->second;
  bucket = {refilled(bucket), now};
  if (bucket.left >= 1) {
    bucket.left -= 1;
    return absl::OkStatus();
  }
  const double wait_s = (1 - bucket.left) / per_second;
  lock.unlock();
  refusals_->Count(RefusalReason::kOpeningsOfAccount, absl::StrCat("account ", tenant.value));
  return absl::UnavailableError(
      absl::StrCat("this account opens or resumes more than ", options_.openings_per_minute,
                   " sessions a minute; try again in ", std::ceil(wait_s), " s"));
}

}  // namespace outboard::gateway
