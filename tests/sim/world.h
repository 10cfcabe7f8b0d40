// A simulated fleet on one thread: virtual time, events in order, all randomness from one seed. A
// broken guarantee of a session is reported with the trace that led to it; the same seed reproduces
// it.
//
// Times are nanoseconds from the world's beginning.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <queue>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace outboard::sim {

constexpr int64_t kMs = 1'000'000;
constexpr int64_t kSecond = 1000 * kMs;

class World {
 public:
  explicit World(uint64_t seed) : random_(seed) {}

  int64_t now() const { return now_; }
  int64_t now_ms() const { return now_ / kMs; }
  // Of the wall clock, some day in 2026; it jumps.
  int64_t wall_ms() const { return 1'780'000'000'000 + now_ms() + wall_jumps_ms_; }
  void JumpWall(int64_t ms) { wall_jumps_ms_ += ms; }
  void After(int64_t delay_ns, std::function<void()> what) {
    size_t place = whats_.size();
    if (free_.empty()) {
      whats_.push_back(std::move(what));
    } else {
      place = free_.back();
      free_.pop_back();
      whats_[place] = std::move(what);
    }
    events_.push({now_ + delay_ns, next_++, place});
  }
  // Runs the next event; false: there is none before `until`.
  bool Step(int64_t until) {
    if (events_.empty() || events_.top().at > until) return false;
    const Event event = events_.top();
    events_.pop();
    now_ = event.at;
    ++steps_;
    const std::function<void()> what = std::exchange(whats_[event.place], nullptr);
    free_.push_back(event.place);
    what();
    return true;
  }

  int64_t steps() const { return steps_; }  // events that have run

  // ---- chance
  uint64_t Draw() { return random_(); }
  int64_t Between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random_() % static_cast<uint64_t>(high - low + 1));
  }
  bool OneIn(uint64_t n) { return random_() % n == 0; }

  // ---- results
  template <typename... Parts>
  void ExecutorTrace(const Parts&... parts) {
    trace_.push_back(absl::StrCat(now_ms(), " ms: ", parts...));
    if (trace_.size() > kTraceLines) trace_.pop_front();
  }
  // Counts events that a test requires to have happened.
  void Count(const std::string& what) { ++counts_[what]; }
  const std::map<std::string, int>& counts() const { return counts_; }
  // Only the first is stored.
  template <typename... Parts>
  void Broken(const Parts&... parts) {
    if (broken_.empty()) broken_ = absl::StrCat(now_ms(), " ms: ", parts...);
  }
  const std::string& broken() const { return broken_; }
  std::string trace() const { return absl::StrJoin(trace_, "\n"); }

 private:
  static constexpr size_t kTraceLines = 60;
  struct Event {
    int64_t at;
    uint64_t order;
    size_t place;  // in whats_, so that the queue moves small things
    bool operator<(const Event& other) const {
      return std::pair(at, order) > std::pair(other.at, other.order);  // the earliest is on top
    }
  };

  int64_t now_ = 0, wall_jumps_ms_ = 0;
  int64_t steps_ = 0;
  uint64_t next_ = 0;
  std::priority_queue<Event> events_;
  std::vector<std::function<void()>> whats_;
  std::vector<size_t> free_;  // places
  std::mt19937_64 random_;
  std::deque<std::string> trace_;
  std::map<std::string, int> counts_;
  std::string broken_;
};

}  // namespace outboard::sim
