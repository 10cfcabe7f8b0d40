// A CoreDriver's host in the gateway's process: the machine's clocks, the kernel's randomness, the
// pool; and the thread that tells it of time.
//
// Threads: any.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

#include "gateway/base/clock.h"
#include "gateway/base/limits.h"
#include "base/work_queue.h"
#include "gateway/data_path/core_driver.h"
#include "gateway/data_path/host.h"

namespace outboard::gateway {

class ProcessHost final : public DriverHost {
 public:
  explicit ProcessHost(WorkQueue* pool) : pool_(pool) {}
  MonoTime Now() override { return MonoNow(); }
  WallTime WallNow() override { return gateway::WallNow(); }
  Token DrawToken() override { return Draw<Token>(); }
  void Post(std::function<void()> job) override { pool_->Post(std::move(job)); }

 private:
  WorkQueue* const pool_;
};

// Calls OnTick every kTickMs until its end.
class Ticker {
 public:
  explicit Ticker(CoreDriver* driver) : driver_(driver), thread_([this] { Work(); }) {}
  ~Ticker() {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_all();
    thread_.join();
  }

 private:
  void Work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      const auto next = std::chrono::steady_clock::now() + std::chrono::milliseconds(kTickMs);
      if (wake_.wait_until(lock, next, [this] { return stopping_; })) return;
      lock.unlock();
      driver_->OnTick();
      lock.lock();
    }
  }

  CoreDriver* const driver_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace outboard::gateway
