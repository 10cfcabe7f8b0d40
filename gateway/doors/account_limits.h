// What an account may have of the gateway at a time: calls that wait for an answer, streams, and
// sessions opened within a minute.
//
// Errors: UNAVAILABLE  over a limit, which the message names; that passes, so clients try again
// Threads: any. A slot may outlive the limits.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gateway/base/limits.h"
#include "gateway/doors/refusals.h"
#include "gateway/ledger/ids.h"

namespace outboard::gateway {

struct AccountLimitsOptions {
  int calls = kCallsPerAccountMax;
  int streams = kStreamsPerAccountMax;
  int openings_per_minute = kOpeningsPerMinute;
};

enum class SlotKind { kCall, kStream };

class AccountLimits {
 public:
  using Clock = std::chrono::steady_clock;
  AccountLimits(const AccountLimitsOptions& options, Refusals* refusals)
      : options_(options), refusals_(refusals), counts_(std::make_shared<Counts>()) {}

  // A call or stream of the account is over when what is returned is destroyed.
  absl::StatusOr<std::shared_ptr<const void>> Begin(TenantId tenant, SlotKind kind);
  // The account opens or resumes a session.
  absl::Status MayOpen(TenantId tenant, Clock::time_point now);

 private:
  struct Counts {
    std::mutex mutex;
    std::map<int64_t, int> of_kind[2];  // by tenant, none of them 0
  };
  // Holds `left` openings at `at`, and gets more with time.
  struct Bucket {
    double left = 0;
    Clock::time_point at{};
  };

  const AccountLimitsOptions options_;
  Refusals* const refusals_;
  const std::shared_ptr<Counts> counts_;
  std::mutex mutex_;
  std::map<int64_t, Bucket> openings_;  // by tenant; those that are full again are forgotten
  Clock::time_point forgot_at_{};
};

}  // namespace outboard::gateway
