// A thread pool with one queue: a fixed number of threads run posted jobs in order. For work that
// must not block a thread of gRPC (verification, hashing, disk). Callers bound the queue: each call
// or stream posts one job at a time.
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

  // Runs `job` on a thread of the pool; after Stop, on the caller's thread.
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

  // Runs all posted jobs, then ends the threads.
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
