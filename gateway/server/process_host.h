// The process around a gateway's driver: its clocks, randomness and threads, and the thread that
// tells it of time.
#pragma once

#include <malloc.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

#include "gateway/base/clock.h"
#include "gateway/base/limits.h"
#include "gateway/base/thrown.h"
#include "gateway/data_path/core_driver.h"
#include "gateway/data_path/host.h"
#include "gateway/doors/key_door.h"
#include "gateway/streams/work_queues.h"
#include "telemetry/log.h"

namespace outboard::gateway {

// A CoreDriver's host in the gateway's process: the machine's clocks, the kernel's randomness, the
// threads that take turns; and the thread that tells it of time.
//
// Threads: any.
class ProcessHost final : public DriverHost {
 public:
  explicit ProcessHost(WorkQueues* queues) : queues_(queues) {}
  void SetDoor(KeyDoor* door) { door_ = door; }
  // Ends the process, from any thread. Call before the driver has any events.
  void SetEnd(std::function<void()> end) { end_ = std::move(end); }
  MonoTime Now() override { return MonoNow(); }
  WallTime WallNow() override { return gateway::WallNow(); }
  Token DrawToken() override { return Draw<Token>(); }
  void Post(std::function<void()> job) override { queues_->pool.Post(kOwnTurn, std::move(job)); }
  void PostFor(TenantId tenant, std::function<void()> job) override {
    queues_->pool.Post(static_cast<uint64_t>(tenant.value), std::move(job));
  }
  void PostKeys(std::function<void()> job) override { door_->Post(std::move(job)); }
  void GiveUp(const absl::Status& why) override {
    ErrorIfThrown("the end of this gateway", [&] {
      telemetry::LogError("gateway_gives_up", {{"message", why.ToString()},
                                               {"effect", "this gateway ends"}});
      return absl::OkStatus();
    }).IgnoreError();
    end_();
  }
  void FramePasses(TenantId tenant) override {
    queues_->steps.Note(tenant, StepTimes::Clock::now());
  }

 private:
  static constexpr uint64_t kOwnTurn = 0;  // no account has this number

  WorkQueues* const queues_;
  KeyDoor* door_ = nullptr;
  std::function<void()> end_ = [] {};
};

// Gives back what the allocator keeps of a flood that is over: it returns only what lies at the end
// of an arena, and a call that lives on keeps all below it.
inline void TrimMemory() {
  if (mallinfo2().fordblks > kFreeBytesKept) malloc_trim(0);
}

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
      if (++ticks_ % kTrimTicks == 0) TrimMemory();
      lock.lock();
    }
  }

  CoreDriver* const driver_;
  uint64_t ticks_ = 0;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace outboard::gateway
