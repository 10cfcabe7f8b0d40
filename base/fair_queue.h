// A thread pool whose work takes turns between accounts, by what it costs: each account is charged
// the time that its jobs ran, and the account with the least on its bill is next (start-time fair
// queueing: Goyal, Vin, Cheng, SIGCOMM 1996). Jobs of one account begin in the order of Post. An
// account without jobs collects no credit: its bill begins where those of the others are.
//
// Invariants, under the lock:
//   F1  An account is in ready_ exactly while it has a job that may begin: some wait, fewer run
//       than it may have at once, and it does not rest. In resting_ it is exactly while it rests.
//   F2  The bill of an account that had no jobs begins at clock_ or later; clock_ never goes back.
//   F3  An account without jobs is remembered only while its bill is ahead of clock_.
// Callers bound what waits: each call or stream posts one job at a time.
//
// Threads: any may post.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "base/thread_slice.h"

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
    // something to do. Whoever passes steps on interrupts the threads, whatever it is.
    int niceness = 0;
    // While it holds, an account has one job at a time and rests after each for as long as that
    // ran: it has at most half a processor. Any account, if it is empty, never gives way. Called
    // under the lock, with accounts that have jobs.
    std::function<bool(uint64_t account)> gives_way = {};
    NowUs now_us = SteadyUs;  // another one of a test
    // Called within the catch of what a job of the account threw; the queue goes on with the next
    // job. Without it, what a job throws ends the process.
    std::function<void(uint64_t account)> caught = {};
  };
  explicit FairQueue(const Options& options)
      : at_once_(options.at_once),
        gives_way_(options.gives_way),
        now_us_(options.now_us),
        caught_(options.caught) {
    for (int i = 0; i < options.threads; ++i)
      threads_.emplace_back([this, niceness = options.niceness] {
        YieldToOthers(niceness);
        Work();
      });
  }
  ~FairQueue() { Stop(); }
  FairQueue(const FairQueue&) = delete;
  FairQueue& operator=(const FairQueue&) = delete;

  // Runs `job` on a thread of the pool when it is the account's turn; after Stop, on the caller's.
  // Where there is no memory for it, it throws, and has nothing of the job.
  void Post(uint64_t account, std::function<void()> job) {
    {
      std::unique_lock lock(mutex_);
      if (!stopping_) {
        // All the memory that it takes: an account that a throw left behind would be neither ready
        // nor idle, and never be forgotten.
        std::map<uint64_t, Account> accounts;
        accounts.try_emplace(account);
        std::set<std::pair<int64_t, uint64_t>> ready = {{0, account}};
        std::list<std::function<void()>> jobs;
        jobs.push_back(std::move(job));
        Account& owner = Find(accounts.extract(accounts.begin()));
        owner.waiting.splice(owner.waiting.end(), jobs);
        ++waiting_;
        if (MayBegin(owner)) {  // F1
          auto place = ready.extract(ready.begin());
          place.value().first = owner.bill_us;
          ready_.insert(std::move(place));
        }
        lock.unlock();
        wake_.notify_one();
        return;
      }
    }
    Run(account, job);
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
    int64_t typical_us = 0;      // of its last jobs: what one is expected to cost
    int at_once = 0;             // jobs, since it was last asked whether it gives way
    int64_t rests_until_us = 0;  // 0: it does not rest
    std::list<std::function<void()>> waiting;
  };

  static int64_t SteadyUs() {
    return std::chrono::duration_cast<std::chrono::microseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }
  // Longer jobs are rare, and whoever steps may have stopped meanwhile.
  static constexpr int64_t kRestUsMax = 50'000;

  bool MayBegin(const Account& account) const {
    return !account.waiting.empty() && account.running < account.at_once &&
           account.rests_until_us == 0;
  }
  bool GivesWay(uint64_t name) const { return !stopping_ && gives_way_ && gives_way_(name); }

  void Rest(Account& account, uint64_t name, int64_t us) {
    if (account.rests_until_us != 0) return;  // of a job that began before it gave way
    account.rests_until_us = now_us_() + std::min(us, kRestUsMax);
    resting_.emplace(account.rests_until_us, name);
  }
  // Ends rests that are over, or all of them; says how long the next one lasts, or 0 if none does.
  int64_t EndRests(bool all) {
    while (!resting_.empty()) {
      const auto [until_us, name] = *resting_.begin();
      const int64_t left_us = all ? 0 : until_us - now_us_();
      if (left_us > 0) return left_us;
      resting_.erase(resting_.begin());
      Account& account = accounts_.at(name);
      account.rests_until_us = 0;
      if (MayBegin(account)) ready_.emplace(account.bill_us, name);  // F1
      MayIdle(account, name);
    }
    return 0;
  }
  void MayIdle(const Account& account, uint64_t name) {
    if (IsIdle(account)) idle_.emplace(account.bill_us, name);
  }
  static bool IsIdle(const Account& account) {
    return account.waiting.empty() && account.running == 0 && account.rests_until_us == 0;
  }

  // The account of this name, which is that of `fresh` if it is not known. Does not throw.
  Account& Find(std::map<uint64_t, Account>::node_type fresh) {
    const uint64_t name = fresh.key();
    const auto inserted = accounts_.insert(std::move(fresh));
    const bool is_new = inserted.inserted;
    Account& account = inserted.position->second;
    if (is_new) account.at_once = at_once_;
    if (IsIdle(account)) {
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

  // False: the queue has stopped, and nothing waits.
  bool AwaitReady(std::unique_lock<std::mutex>& lock) {
    for (;;) {
      const int64_t rest_us = EndRests(/*all=*/stopping_);
      if (!ready_.empty()) {
        // Somebody else takes the next one, or waits for the end of a rest.
        if (ready_.size() > 1 || !resting_.empty()) wake_.notify_one();
        return true;
      }
      if (stopping_ && waiting_ == 0) return false;
      if (rest_us == 0)
        wake_.wait(lock);
      else
        wake_.wait_for(lock, std::chrono::microseconds(rest_us));
    }
  }

  // And destroys it.
  void Run(uint64_t account, std::function<void()>& job) {
    if (caught_ == nullptr) {
      job();
    } else {
      try {
        job();
      } catch (...) {
        caught_(account);
      }
    }
    job = nullptr;
  }

  void Work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      if (!AwaitReady(lock)) return;
      const uint64_t name = ready_.begin()->second;
      Account& account = accounts_.at(name);
      ready_.erase(ready_.begin());
      account.at_once = GivesWay(name) ? 1 : at_once_;
      if (account.running >= account.at_once) continue;  // until one of those has run
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
      Run(name, job);
      const int64_t cost_us = std::max<int64_t>(now_us_() - began_us, 1);
      lock.lock();
      --account.running;
      account.typical_us = (account.typical_us * 3 + cost_us) / 4;
      Charge(account, name, cost_us - expected_us);
      if (GivesWay(name)) {
        ready_.erase({account.bill_us, name});
        Rest(account, name, cost_us);
      } else {
        account.at_once = at_once_;
      }
      MayIdle(account, name);
      if (MayBegin(account) && ready_.emplace(account.bill_us, name).second) wake_.notify_one();
      if (ready_.empty() && waiting_ == 0 && AllIdle())
        clock_ = std::max(clock_, idle_.rbegin()->first);
      while (!idle_.empty() && idle_.begin()->first <= clock_) {  // F3
        accounts_.erase(idle_.begin()->second);
        idle_.erase(idle_.begin());
      }
      if (stopping_) wake_.notify_all();
    }
  }
  bool AllIdle() const { return !idle_.empty() && idle_.size() == accounts_.size(); }

  const int at_once_;
  const std::function<bool(uint64_t account)> gives_way_;
  const NowUs now_us_;
  const std::function<void(uint64_t account)> caught_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::map<uint64_t, Account> accounts_;
  std::set<std::pair<int64_t, uint64_t>> ready_;    // by bill
  std::set<std::pair<int64_t, uint64_t>> idle_;     // without jobs, by bill
  std::set<std::pair<int64_t, uint64_t>> resting_;  // by the end of their rest
  int64_t clock_ = 0;                               // the bill of the last job that began
  size_t waiting_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace outboard
