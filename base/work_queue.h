// A fixed number of threads that run posted jobs in order: for work that must not block a thread of
// gRPC (verification, hashing, disk). Its callers bound the queue: each call or stream posts one job
// at a time.
// Threads: any may post.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace outboard {

class WorkQueue {
 public:
  explicit WorkQueue(int threads) {
    for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Work(); });
  }
  ~WorkQueue() { Stop(); }

  // Runs `job` on some thread; after Stop, in the caller's.
  void Post(std::function<void()> job) {
    {
      std::unique_lock lock(mutex_);
      if (!stopping_) {
        jobs_.push_back(std::move(job));
        lock.unlock();
        wake_.notify_one();
        return;
      }
    }
    job();
  }

  // Finishes what was posted.
  void Stop() {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_all();
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

 private:
  void Work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      wake_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
      if (jobs_.empty()) return;
      std::function<void()> job = std::move(jobs_.front());
      jobs_.pop_front();
      lock.unlock();
      job();
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> jobs_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace outboard
