#include "wire/blobs/transfer.h"

#include <thread>

#include "absl/strings/str_cat.h"

namespace outboard::wire {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kLookEvery{100};
constexpr std::chrono::milliseconds kRetryPause{200};

}  // namespace

TransferStripes::TransferStripes(const TransferOptions& options, uint64_t total_bytes)
    : options_(options), total_bytes_(total_bytes) {}

void TransferStripes::Moved(uint64_t bytes) {
  moved_ += bytes;
  ++ticks_;
  ++heard_;
}

void TransferStripes::Worked() { ++ticks_; }

void TransferStripes::SetSaved(uint64_t bytes) {
  saved_ = bytes;
  ++ticks_;
  ++heard_;
}

TransferProgress TransferStripes::progress() const { return {total_bytes_, moved_, saved_}; }

void TransferStripes::Stop() {
  stopping_ = true;
  for (grpc::ClientContext* call : calls_) call->TryCancel();
}

absl::Status TransferStripes::Check() const {
  if (options_.cancelled != nullptr && *options_.cancelled) return absl::CancelledError("stopped");
  return options_.check ? options_.check() : absl::OkStatus();
}

// Waits until all stripes have ended. Its result takes precedence over theirs: they were told to
// stop.
absl::Status TransferStripes::Watch(std::unique_lock<std::mutex>& lock, int count) {
  absl::Status status;
  uint64_t seen = ticks_;
  Clock::time_point moved_at = Clock::now();
  while (!changed_.wait_for(lock, kLookEvery, [&] { return ended_ == count; })) {
    lock.unlock();
    if (options_.progress) options_.progress(progress());
    const absl::Status check = stopping_ ? absl::OkStatus() : Check();
    lock.lock();
    const Clock::time_point now = Clock::now();
    if (uint64_t ticks = ticks_; ticks != seen) {
      seen = ticks;
      moved_at = now;
    }
    if (stopping_) continue;
    if (!check.ok()) {
      status = check;
    } else if (now - moved_at > options_.stalled_after) {
      status = absl::DeadlineExceededError(
          absl::StrCat("no byte moved for ", options_.stalled_after.count(), " ms"));
    }
    if (!status.ok()) Stop();
  }
  return status;
}

absl::Status TransferStripes::Run(int count, const std::function<absl::Status(int stripe)>& work) {
  stopping_ = false;
  ended_ = 0;
  first_ = absl::OkStatus();
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) {
    threads.emplace_back([this, &work, i] {
      absl::Status status = work(i);
      std::lock_guard lock(mutex_);
      if (!status.ok() && !stopping_) {
        first_ = std::move(status);
        Stop();
      }
      ++ended_;
      changed_.notify_all();
    });
  }
  absl::Status status;
  {
    std::unique_lock lock(mutex_);
    status = Watch(lock, count);
  }
  for (std::thread& thread : threads) thread.join();
  if (options_.progress) options_.progress(progress());
  return status.ok() ? first_ : status;
}

absl::Status TransferStripes::RunWithRetries(int count,
                                             const std::function<absl::Status(int stripe)>& work,
                                             const std::function<void()>& again) {
  Clock::time_point moved_at = Clock::now();
  for (;;) {
    const uint64_t before = heard_;
    absl::Status status = Run(count, work);
    if (!absl::IsUnavailable(status)) return status;
    const Clock::time_point now = Clock::now();
    if (heard_ != before) moved_at = now;
    if (now - moved_at > options_.retry_for) return status;
    for (auto waited = kRetryPause; waited.count() > 0; waited -= kLookEvery) {
      if (absl::Status check = Check(); !check.ok()) return check;
      std::this_thread::sleep_for(kLookEvery);
    }
    again();
  }
}

TransferStripes::Call::Call(TransferStripes* stripes, const BlobConnections& connections)
    : stripes_(stripes) {
  for (const auto& [name, value] : connections.metadata) context_.AddMetadata(name, value);
  std::lock_guard lock(stripes_->mutex_);
  stripes_->calls_.insert(&context_);
  if (stripes_->stopping_) context_.TryCancel();
}

TransferStripes::Call::~Call() {
  std::lock_guard lock(stripes_->mutex_);
  stripes_->calls_.erase(&context_);
}

}  // namespace outboard::wire
