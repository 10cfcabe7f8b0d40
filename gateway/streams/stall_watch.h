// Ends what waits too long for its peer: a stream whose reader takes nothing, a transfer whose
// sender sends nothing. What such a peer holds of this process's memory is freed.
//
// Threads: any. `cancel` is called from the watch's thread, never after its Watched is destroyed;
// it may destroy it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <utility>

namespace outboard::gateway {

class StallWatch {
 public:
  explicit StallWatch(std::chrono::milliseconds stalled_after);
  ~StallWatch();  // requires that all Watched are destroyed
  StallWatch(const StallWatch&) = delete;
  StallWatch& operator=(const StallWatch&) = delete;

  class Watched {
   public:
    ~Watched();
    // Waits() begins and Goes() ends a period of waiting for the peer.
    void Waits();
    void Goes();

   private:
    friend class StallWatch;
    Watched(StallWatch* watch, std::function<void()> cancel)
        : watch_(watch), cancel_(std::move(cancel)) {}
    StallWatch* const watch_;
    const std::function<void()> cancel_;
    std::optional<std::chrono::steady_clock::time_point> since_;
  };
  std::unique_ptr<Watched> Watch(std::function<void()> cancel);

 private:
  void CancelStalled();

  const std::chrono::milliseconds stalled_after_;
  std::recursive_mutex mutex_;  // recursive: `cancel` may destroy what is watched
  std::set<Watched*> all_;
  bool stopping_ = false;
  std::condition_variable_any wake_;
  std::thread thread_;
};

}  // namespace outboard::gateway
