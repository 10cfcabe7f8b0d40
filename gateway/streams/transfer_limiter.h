// Limits concurrent uploads, or downloads: the number per tenant and in total, and the time that a
// transfer may wait for its peer. Each transfer holds a chunk in memory, an upload also a file.
//
// Errors: UNAVAILABLE  too many at once; try again later
// Threads: any; `cancel` of a transfer as in StallWatch.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "absl/status/statusor.h"
#include "gateway/ledger/ids.h"
#include "gateway/streams/stall_watch.h"

namespace outboard::gateway {

class TransferLimiter {
 public:
  // `what` appears in errors: "uploads". A transfer that waits for its peer for longer than
  // `stalled_after` is cancelled.
  // All transfers must be destroyed before it.
  TransferLimiter(const char* what, std::chrono::milliseconds stalled_after)
      : what_(what), stalls_(stalled_after) {}

  class Transfer {
   public:
    ~Transfer();
    // Waits() begins and Goes() ends a period of waiting for the peer.
    void Waits() { watched_->Waits(); }
    void Goes() { watched_->Goes(); }

   private:
    friend class TransferLimiter;
    Transfer(TransferLimiter* all, TenantId tenant, std::unique_ptr<StallWatch::Watched> watched)
        : all_(all), tenant_(tenant), watched_(std::move(watched)) {}
    TransferLimiter* const all_;
    const TenantId tenant_;
    const std::unique_ptr<StallWatch::Watched> watched_;
  };
  absl::StatusOr<std::unique_ptr<Transfer>> Begin(TenantId tenant, std::function<void()> cancel);

 private:
  const char* const what_;
  std::mutex mutex_;
  size_t count_ = 0;
  std::map<int64_t, int> of_tenant_;
  StallWatch stalls_;
};

}  // namespace outboard::gateway
