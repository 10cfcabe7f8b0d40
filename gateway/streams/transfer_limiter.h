// Limits concurrent uploads, or downloads: the number per tenant and in total, and the time that a
// transfer may wait for its peer. Each transfer holds a chunk in memory, an upload also a file.
//
// Errors: UNAVAILABLE  too many at once; try again later
// Threads: any. `cancel` of a transfer is called from the limiter's thread, never after the
// transfer is destroyed; it may destroy the transfer.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "gateway/ledger/ids.h"

namespace outboard::gateway {

class TransferLimiter {
 public:
  // `what` appears in errors: "uploads". A transfer that waits for its peer for longer than
  // `stalled_after` is cancelled.
  TransferLimiter(const char* what, std::chrono::milliseconds stalled_after);
  ~TransferLimiter();  // requires that all transfers are destroyed
  TransferLimiter(const TransferLimiter&) = delete;
  TransferLimiter& operator=(const TransferLimiter&) = delete;

  class Transfer {
   public:
    ~Transfer();
    // Waits() begins and Goes() ends a period of waiting for the peer.
    void Waits();
    void Goes();

   private:
    friend class TransferLimiter;
    Transfer(TransferLimiter* all, TenantId tenant, std::function<void()> cancel)
        : all_(all), tenant_(tenant), cancel_(std::move(cancel)) {}
    TransferLimiter* const all_;
    const TenantId tenant_;
    const std::function<void()> cancel_;
    std::optional<std::chrono::steady_clock::time_point> waits_since_;
  };
  absl::StatusOr<std::unique_ptr<Transfer>> Begin(TenantId tenant, std::function<void()> cancel);

 private:
  void CancelStalled();

  const char* const what_;
  const std::chrono::milliseconds stalled_after_;
  std::recursive_mutex mutex_;  // recursive: `cancel` may destroy the transfer
  std::set<Transfer*> all_;
  std::map<int64_t, int> of_tenant_;
  bool stopping_ = false;
  std::condition_variable_any wake_;
  std::thread thread_;
};

}  // namespace outboard::gateway
