// Gives answers when their time has come: those to wrong keys and wrong fleet secrets, which wait
// as long as wrong_keys.h says, and those to openings beyond an account's limit.
//
// Threads: any may call; answers are given on a thread of its own.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

namespace outboard::gateway {

class DelayedAnswers {
 public:
  DelayedAnswers() : thread_([this] { Work(); }) {}
  ~DelayedAnswers() { Stop(); }
  DelayedAnswers(const DelayedAnswers&) = delete;
  DelayedAnswers& operator=(const DelayedAnswers&) = delete;

  // Calls `answer` after `delay`; once Stop has begun, at once, on the caller's thread.
  void After(std::chrono::milliseconds delay, std::function<void()> answer);

  // Gives all answers that wait, then ends the thread. May be called again.
  void Stop();

 private:
  using Clock = std::chrono::steady_clock;
  void Work();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::multimap<Clock::time_point, std::function<void()>> waiting_;  // by when they are due
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace outboard::gateway
