// The uploads or the downloads that are under way: so many of each tenant and of all, and none that
// has been waiting for the other side for long. Each holds a chunk in memory, an upload a file as
// well.
//
// Errors: UNAVAILABLE  too many at once; who asks again in a while is let in
// Threads: any. `cancel` of a transfer is called in a thread of its own, and not after the transfer
// is destroyed; it may destroy it.
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
  // `what`: "uploads", for people.
  TransferLimiter(const char* what, std::chrono::milliseconds stalled_after);
  ~TransferLimiter();  // after the last transfer's
  TransferLimiter(const TransferLimiter&) = delete;
  TransferLimiter& operator=(const TransferLimiter&) = delete;

  class Transfer {
   public:
    ~Transfer();
    // From now on the other side is waited for, until Goes.
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
  std::recursive_mutex mutex_;  // a cancelled call may end within `cancel`
  std::set<Transfer*> all_;
  std::map<int64_t, int> of_tenant_;
  bool stopping_ = false;
  std::condition_variable_any wake_;
  std::thread thread_;
};

}  // namespace outboard::gateway
