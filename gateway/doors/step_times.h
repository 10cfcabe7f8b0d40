// Who has steps on their way: work that may wait gives way to those of other accounts
// (base/fair_queue.h).
//
// The last two accounts are remembered, which answers the question for any third one. Two frames at
// the same moment may leave one of them out, which the next frame corrects: a hint, no more.
//
// Threads: any.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "gateway/base/limits.h"
#include "gateway/ledger/ids.h"

namespace outboard::gateway {

class StepTimes {
 public:
  using Clock = std::chrono::steady_clock;

  // A frame with steps of the account has passed.
  void Note(TenantId tenant, Clock::time_point now) {
    const int64_t now_ms = Milliseconds(now), last = last_.tenant.load();
    if (last != tenant.value) {
      before_.tenant = last;
      before_.at_ms = last_.at_ms.load();
      last_.tenant = tenant.value;
    }
    if (last_.at_ms.load() != now_ms) last_.at_ms = now_ms;
  }

  // True if another account's has passed within kStepsRecentMs.
  bool OthersStep(TenantId tenant, Clock::time_point now) const {
    const int64_t since_ms = Milliseconds(now) - kStepsRecentMs;
    const auto steps = [&](const Entry& entry) {
      return entry.tenant.load() != tenant.value && entry.at_ms.load() > since_ms;
    };
    return steps(last_) || steps(before_);
  }

 private:
  struct Entry {
    std::atomic<int64_t> tenant{0};  // accounts count from 1
    std::atomic<int64_t> at_ms{INT64_MIN};
  };
  static int64_t Milliseconds(Clock::time_point time) {
    return std::chrono::duration_cast<std::chrono::milliseconds>(time.time_since_epoch()).count();
  }

  Entry last_, before_;
};

}  // namespace outboard::gateway
