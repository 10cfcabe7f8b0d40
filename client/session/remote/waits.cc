// Where a caller of a session over a link sleeps: for an answer, for room in the window, for a
// device. All of it is Sleep, on changed_ (T2 of remote_session.h).
#include <algorithm>

#include "base/check.h"
#include "client/session/remote/remote_session.h"
#include "client/session/waiting.h"

namespace outboard::session {
namespace {

constexpr std::chrono::seconds kSnapshotWithin{5};

}  // namespace

absl::Status RemoteSession::Sleep(std::unique_lock<std::mutex>& lock, Clock::time_point deadline,
                                  const std::function<bool()>& condition,
                                  Interruptible interruptible) {
  absl::Status status;
  const Clock::time_point begin = Clock::now();
  lock.unlock();
  {
    const Waiting waiting;
    lock.lock();
    if (sleepers_++ == 0) silence_.Begin(Clock::now(), BytesDown());
    while (
        status.ok() && Clock::now() < deadline &&
        !changed_.wait_until(lock, std::min(deadline, Clock::now() + kWaitCheckEvery), condition)) {
      TellOfSilence(lock);
      if (interruptible == Interruptible::kNo) continue;
      lock.unlock();
      status = Waiting::Check();
      lock.lock();
    }
    TellOfSilence(lock);  // if that is over
    --sleepers_;
    lock.unlock();
  }
  lock.lock();
  slept_ += Clock::now() - begin;
  return status;
}

void RemoteSession::TellOfSilence(std::unique_lock<std::mutex>& lock) {
  // A private worker is this machine's; a lost connection has lines of its own.
  if (serve_ != nullptr || target_.empty() || IsLost() || ended()) return;
  using News = SilenceWatch::News;
  const News news = silence_.Check(target_, options_.protection, Clock::now(), BytesDown());
  if (news == News::kNone) return;
  lock.unlock();
  Tell(news == News::kSilent ? SilentLine(target_, SilenceWatch::kSilentAfter)
                             : HeardLine(target_));
  lock.lock();
}

uint64_t RemoteSession::BytesDown() const {
  return bytes_down_before_ + values_bytes_before_ + (link_ != nullptr ? link_->bytes_down() : 0) +
         (values_ != nullptr ? values_->bytes_down() : 0);
}

absl::Status RemoteSession::Wait(std::unique_lock<std::mutex>& lock,
                                 const std::function<bool()>& condition) {
  if (condition()) return absl::OkStatus();
  const trace::Scope scope(options_.trace, "blocked", trace_session_);
  ++round_trips_;
  return Sleep(lock, Clock::time_point::max(), condition);
}

absl::Status RemoteSession::AwaitWindow(std::unique_lock<std::mutex>& lock, uint64_t bytes,
                                        Interruptible interruptible) {
  OB_RETURN_IF_ERROR(AwaitBegun(lock, interruptible));
  const auto may = [&] { return core_.HasWindow(bytes) || ended(); };
  const auto snapshot = [&] { return core_.AwaitsSnapshot(bytes); };
  if (!may()) {
    const trace::Scope scope(options_.trace, "window full", trace_session_);
    ++window_waits_;
    do {
      OB_RETURN_IF_ERROR(Sleep(
          lock, Clock::time_point::max(), [&] { return may() || snapshot(); }, interruptible));
      if (may()) continue;
      OB_RETURN_IF_ERROR(Sleep(
          lock, Clock::now() + kSnapshotWithin, [&] { return ended() || !snapshot(); },
          interruptible));
      if (snapshot() && !ended()) core_.GiveUpRecovery();
    } while (!may());
  }
  core_.Advance(Now());
  return ended() ? core_.status() : absl::OkStatus();
}

absl::Status RemoteSession::AwaitBegun(std::unique_lock<std::mutex>& lock,
                                       Interruptible interruptible) {
  if (has_begun_) return absl::OkStatus();
  const trace::Scope scope(options_.trace, "wait for a device", trace_session_);
  OB_RETURN_IF_ERROR(Sleep(
      lock, Clock::time_point::max(), [this] { return has_begun_ || ended(); }, interruptible));
  return ended() ? core_.status() : absl::OkStatus();
}

}  // namespace outboard::session
