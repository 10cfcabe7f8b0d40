// An answer that somebody owes a caller. Where nobody gives it, since what was to give it threw,
// the last one to let go of it does: else the caller waits for ever, and the server's end for the
// caller.
//
// `Call` is whatever answers. Its End(status) ends it, may end its life, and does not throw; it is
// called once at most.
//
// Errors: those of a step
//         RESOURCE_EXHAUSTED, INTERNAL  it was let go of, or threw (gateway/base/thrown.h)
// Threads: any.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "gateway/base/thrown.h"

namespace outboard::gateway {

template <typename Call>
class OwedAnswer {
 public:
  explicit OwedAnswer(Call* call) : call_(call) {}
  ~OwedAnswer() {
    if (Call* const call = Take()) call->End(kNoMemoryAtAll);
  }
  OwedAnswer(const OwedAnswer&) = delete;
  OwedAnswer& operator=(const OwedAnswer&) = delete;
  // Null once it is taken, by whoever answers.
  Call* Take() { return call_.exchange(nullptr); }
  void Owe(Call* call) { call_ = call; }

  // One step of a call that has several: what it returns, or throws, ends the call where it is an
  // error. OK: the call goes on by what the step began last.
  template <typename Step>
  static void RunStep(Call* call, Step&& step, std::optional<int64_t> account = {}) noexcept {
    const absl::Status status = ErrorIfThrown("a call", std::forward<Step>(step), account);
    if (!status.ok()) call->End(status);
  }

  // Has `post` run `step` later, as RunStep does. Where that throws, or lets go of it, the call
  // ends.
  template <typename Post>
  static void RunStepLater(Call* call, Post&& post, absl::Status (Call::*step)(),
                           std::optional<int64_t> account = {}) noexcept {
    std::shared_ptr<OwedAnswer> owed;
    const absl::Status status = ErrorIfThrown(
        "a call",
        [&] {
          owed = std::make_shared<OwedAnswer>(call);
          post([owed, step, account] {
            Call* const mine = owed->Take();
            if (mine != nullptr) RunStep(mine, [mine, step] { return (mine->*step)(); }, account);
          });
          return absl::OkStatus();
        },
        account);
    if (!status.ok() && (owed == nullptr || owed->Take() != nullptr)) call->End(status);
  }

 private:
  std::atomic<Call*> call_;
};

}  // namespace outboard::gateway
