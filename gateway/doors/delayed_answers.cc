#include "gateway/doors/delayed_answers.h"

#include <utility>

namespace outboard::gateway {

void DelayedAnswers::After(std::chrono::milliseconds delay, std::function<void()> answer) {
  {
    std::lock_guard lock(mutex_);
    if (!stopping_) {
      waiting_.emplace(Clock::now() + delay, std::move(answer));
      wake_.notify_all();
      return;
    }
  }
  answer();
}

void DelayedAnswers::Work() {
  std::unique_lock lock(mutex_);
  while (!stopping_ || !waiting_.empty()) {
    if (waiting_.empty()) {
      wake_.wait(lock);
      continue;
    }
    const auto due = waiting_.begin()->first;
    if (!stopping_ && Clock::now() < due) {
      wake_.wait_until(lock, due);
      continue;
    }
    const std::function<void()> answer = std::move(waiting_.begin()->second);
    waiting_.erase(waiting_.begin());
    lock.unlock();
    answer();
    lock.lock();
  }
}

void DelayedAnswers::Stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

}  // namespace outboard::gateway
