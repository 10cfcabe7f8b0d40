#include "gateway/streams/stall_watch.h"

#include <vector>

#include "gateway/base/thrown.h"
#include "telemetry/counters.h"

namespace outboard::gateway {

using Clock = std::chrono::steady_clock;

StallWatch::StallWatch(std::chrono::milliseconds stalled_after)
    : stalled_after_(stalled_after), thread_([this] { CancelStalled(); }) {}

StallWatch::~StallWatch() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

std::unique_ptr<StallWatch::Watched> StallWatch::Watch(std::function<void()> cancel) {
  std::unique_ptr<Watched> watched(new Watched(this, std::move(cancel)));
  std::lock_guard lock(mutex_);
  all_.insert(watched.get());
  return watched;
}

StallWatch::Watched::~Watched() {
  std::lock_guard lock(watch_->mutex_);
  watch_->all_.erase(this);
}

void StallWatch::Watched::Waits() {
  std::lock_guard lock(watch_->mutex_);
  since_ = Clock::now();
}

void StallWatch::Watched::Goes() {
  std::lock_guard lock(watch_->mutex_);
  since_.reset();
}

void StallWatch::CancelStalled() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    const Clock::time_point now = Clock::now();
    // What throws, as where memory ends, is tried again in the next round.
    ErrorIfThrown("looking for who stalls", [&] {
      std::vector<Watched*> stalled;
      for (Watched* watched : all_)
        if (watched->since_ && now - *watched->since_ >= stalled_after_) stalled.push_back(watched);
      for (Watched* watched : stalled) {
        if (!all_.contains(watched)) continue;
        const std::function<void()> cancel = watched->cancel_;
        const auto since = std::exchange(watched->since_, std::nullopt);
        const absl::Status cut_off = ErrorIfThrown("cutting off who stalls", [&] {
          cancel();
          return absl::OkStatus();
        });
        if (cut_off.ok())
          telemetry::CountRefused(telemetry::Refusal::kStalledReader);
        else if (all_.contains(watched))
          watched->since_ = since;
      }
      return absl::OkStatus();
    }).IgnoreError();
    wake_.wait_for(lock, stalled_after_ / 4, [this] { return stopping_; });
  }
}

}  // namespace outboard::gateway
