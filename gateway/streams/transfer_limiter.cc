#include "gateway/streams/transfer_limiter.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "gateway/base/limits.h"
#include "telemetry/counters.h"

namespace outboard::gateway {

absl::StatusOr<std::unique_ptr<TransferLimiter::Transfer>> TransferLimiter::Begin(
    TenantId tenant, std::function<void()> cancel) {
  {
    std::lock_guard lock(mutex_);
    const auto known = of_tenant_.find(tenant.value);
    const int count = known == of_tenant_.end() ? 0 : known->second;
    if (count >= kTransfersPerTenantMax || count_ >= kTransfersMax) {
      telemetry::CountRefused(telemetry::Refusal::kStreams);
      return absl::UnavailableError(absl::StrCat(
          "too many ", what_, " at once: ", count, " of this account, limit ",
          kTransfersPerTenantMax, "; ", count_, " of all, limit ", kTransfersMax, "; try again"));
    }
    ++of_tenant_[tenant.value];
    ++count_;
  }
  return std::unique_ptr<Transfer>(new Transfer(this, tenant, stalls_.Watch(std::move(cancel))));
}

TransferLimiter::Transfer::~Transfer() {
  std::lock_guard lock(all_->mutex_);
  --all_->count_;
  const auto count = all_->of_tenant_.find(tenant_.value);
  if (--count->second == 0) all_->of_tenant_.erase(count);
}

}  // namespace outboard::gateway
