#include "gateway/streams/transfer_limiter.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "gateway/base/limits.h"

namespace outboard::gateway {

using Clock = std::chrono::steady_clock;

TransferLimiter::TransferLimiter(const char* what, std::chrono::milliseconds stalled_after)
    : what_(what), stalled_after_(stalled_after), thread_([this] { CancelStalled(); }) {}

TransferLimiter::~TransferLimiter() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

absl::StatusOr<std::unique_ptr<TransferLimiter::Transfer>> TransferLimiter::Begin(
    TenantId tenant, std::function<void()> cancel) {
  std::lock_guard lock(mutex_);
  const auto known = of_tenant_.find(tenant.value);
  const int count = known == of_tenant_.end() ? 0 : known->second;
  if (count >= kTransfersPerTenantMax || all_.size() >= kTransfersMax) {
    return absl::UnavailableError(absl::StrCat(
        "too many ", what_, " at once: ", count, " of this account, limit ", kTransfersPerTenantMax,
        "; ", all_.size(), " of all, limit ", kTransfersMax, "; try again"));
  }
  ++of_tenant_[tenant.value];
  std::unique_ptr<Transfer> transfer(new Transfer(this, tenant, std::move(cancel)));
  all_.insert(transfer.get());
  return transfer;
}

TransferLimiter::Transfer::~Transfer() {
  std::lock_guard lock(all_->mutex_);
  all_->all_.erase(this);
  const auto count = all_->of_tenant_.find(tenant_.value);
  if (--count->second == 0) all_->of_tenant_.erase(count);
}

void TransferLimiter::Transfer::Waits() {
  std::lock_guard lock(all_->mutex_);
  waits_since_ = Clock::now();
}

void TransferLimiter::Transfer::Goes() {
  std::lock_guard lock(all_->mutex_);
  waits_since_.reset();
}

void TransferLimiter::CancelStalled() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    const Clock::time_point now = Clock::now();
    std::vector<Transfer*> stalled;
    for (Transfer* transfer : all_) {
      if (transfer->waits_since_ && now - *transfer->waits_since_ >= stalled_after_)
        stalled.push_back(transfer);
    }
    for (Transfer* transfer : stalled) {
      if (!all_.contains(transfer)) continue;
      transfer->waits_since_.reset();
      const std::function<void()> cancel = transfer->cancel_;
      cancel();
    }
    wake_.wait_for(lock, stalled_after_ / 4, [this] { return stopping_; });
  }
}

}  // namespace outboard::gateway
