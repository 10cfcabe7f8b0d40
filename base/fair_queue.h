// A thread pool whose work takes turns between accounts, by what it costs: each account is charged
// the time that its jobs ran, and the account with the least on its bill is next (start-time fair
// queueing: Goyal, Vin, Cheng, SIGCOMM 1996). Jobs of one account begin in the order of Post. An
// account without jobs collects no credit: its bill begins where those of the others are.
//
// Invariants, under the lock:
//   F1  An account is in ready_ exactly while it has a job that may begin: some wait, and fewer
//       than `at_once` run.
//   F2  The bill of an account that had no jobs begins at clock_ or later; clock_ never goes back.
//   F3  An account without jobs is remembered only while its bill is ahead of clock_.
// Callers bound what waits: each call or stream posts one job at a time.
//
// Threads: any may post.
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

namespace outboard {

class FairQueue {
 public:
  using NowUs = std::function<int64_t()>;
  struct Options {
    int threads = 1;
    // Jobs of one account that run at a time: with fewer than `threads`, one account with jobs that
    // take long never has them all.
    int at_once = 1;
    // Added to the process's (nice(2)): of work that may wait while the rest of the process has
    // something to do.
    int niceness = 0;
    NowUs now_us = SteadyUs;  // another one of a test
  };
  explicit FairQueue(const Options& options) : at_once_(options.at_once), now_us_(options.now_us) {
    for (int i = 0; i < options.threads; ++i)
      threads_.emplace_back([this, niceness = options.niceness] {
        if (niceness > 0) YieldToOthers(niceness);
        Work();
      });
  }
  ~FairQueue() { Stop(); }
  FairQueue(const FairQueue&) = delete;
  FairQueue& operator=(const FairQueue&) = delete;

  // Runs `job` on a thread of the pool when it is the account's turn; after Stop, on the caller's.
  void Post(uint64_t account, std::function<void()> job) {
    {
      std::unique_lock lock(mutex_);
      if (!stopping_) {
        Account& owner = Find(account);
        owner.waiting.push_back(std::move(job));
        ++waiting_;
        if (MayBegin(owner)) ready_.emplace(owner.bill_us, account);  // F1
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

  size_t waiting() const {
    std::lock_guard lock(mutex_);
    return waiting_;
  }
  // Accounts that take memory here.
  size_t accounts() const {
    std::lock_guard lock(mutex_);
    return accounts_.size();
  }

 private:
  struct Account {
    int64_t bill_us = 0;
    int running = 0;
    int64_t typical_us = 0;  // of its last jobs: what one is expected to cost
    std::deque<std::function<void()>> waiting;
  };

  static int64_t SteadyUs() {
    return std::chrono::duration_cast<std::chrono::microseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }
  bool MayBegin(const Account& account) const {
    return !account.waiting.empty() && account.running < at_once_;
  }

  Account& Find(uint64_t name) {
    const auto [at, is_new] = accounts_.try_emplace(name);
    Account& account = at->second;
    if (account.waiting.empty() && account.running == 0) {
      if (!is_new) idle_.erase({account.bill_us, name});
      account.bill_us = std::max(account.bill_us, clock_);  // F2
    }
    return account;
  }

  // Moves the account between two bills, in ready_ if it is there.
  void Charge(Account& account, uint64_t name, int64_t us) {
    const bool was_ready = ready_.erase({account.bill_us, name}) > 0;
    account.bill_us += us;
    if (was_ready) ready_.emplace(account.bill_us, name);
  }

  void Work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      wake_.wait(lock, [this] { return !ready_.empty() || (stopping_ && waiting_ == 0); });
      if (ready_.empty()) return;
      const uint64_t name = ready_.begin()->second;
      Account& account = accounts_.at(name);
      ready_.erase(ready_.begin());
      clock_ = std::max(clock_, account.bill_us);
      std::function<void()> job = std::move(account.waiting.front());
      account.waiting.pop_front();
      --waiting_;
      ++account.running;
      // Charged ahead: another thread must not begin the next one as if this one were free.
      const int64_t expected_us = account.typical_us + 1;
      account.bill_us += expected_us;
      if (MayBegin(account)) ready_.emplace(account.bill_us, name);
      lock.unlock();
      const int64_t began_us = now_us_();
      job();
      job = nullptr;
      const int64_t cost_us = std::max<int64_t>(now_us_() - began_us, 1);
      lock.lock();
      --account.running;
      account.typical_us = (account.typical_us * 3 + cost_us) / 4;
      Charge(account, name, cost_us - expected_us);
      if (account.waiting.empty() && account.running == 0) {
        idle_.emplace(account.bill_us, name);
      } else if (MayBegin(account) && ready_.emplace(account.bill_us, name).second) {
        wake_.notify_one();
      }
      if (ready_.empty() && waiting_ == 0 && AllIdle())
        clock_ = std::max(clock_, idle_.rbegin()->first);
      while (!idle_.empty() && idle_.begin()->first <= clock_) {  // F3
        accounts_.erase(idle_.begin()->second);
        idle_.erase(idle_.begin());
      }
      if (stopping_) wake_.notify_all();
    }
  }
  // Of this thread alone. Niceness decides how much of a processor the thread gets beside others; a
  // long slice, from Linux 6.12 on, that whoever wakes up need not wait for the end of its turn: a
  // step otherwise waited for 3 to 4 ms behind a hash. Older kernels ignore the slice.
  static void YieldToOthers(int niceness) {
    struct Attributes {  // struct sched_attr of sched_setattr(2), which glibc 2.36 lacks
      uint32_t bytes = sizeof(Attributes);
      uint32_t policy = 0;  // SCHED_OTHER
      uint64_t flags = 0;
      int32_t niceness = 0;
      uint32_t priority = 0;
      uint64_t slice_ns = 0, deadline_ns = 0, period_ns = 0;
    } attributes;
    static_assert(sizeof(Attributes) == 48);
    constexpr uint64_t kSliceNs = 100'000'000;  // the longest there is
    const int saved = errno;
    const bool is_known = syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0) == 0;
    attributes.bytes = sizeof attributes;
    attributes.niceness = std::min(attributes.niceness + niceness, 19);
    attributes.slice_ns = kSliceNs;
    if (!is_known || syscall(SYS_sched_setattr, 0, &attributes, 0) != 0)
      [[maybe_unused]] const int now = nice(niceness);  // all that is left, if it is allowed
    errno = saved;
  }

  bool AllIdle() const { return !idle_.empty() && idle_.size() == accounts_.size(); }

  const int at_once_;
  const NowUs now_us_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::map<uint64_t, Account> accounts_;
  std::set<std::pair<int64_t, uint64_t>> ready_;  // by bill
  std::set<std::pair<int64_t, uint64_t>> idle_;   // without jobs, by bill
  int64_t clock_ = 0;                             // the bill of the last job that began
  size_t waiting_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace outboard
