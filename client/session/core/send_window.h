// How many items may be in flight, that is sent and not yet done: enough that the cloud never waits
// for the next, and few, since what is queued is what a Ctrl-C wastes and what a fresh value waits
// behind.
//
// The law, after BBR (Cardwell et al., "BBR: Congestion-Based Congestion Control", ACM Queue 2016),
// with items for bytes and the executor for the bottleneck:
//
//     window = gain * rate * rtt  +  rate * 5 ms  +  burst  +  1        at least 3
//
//   rate   the most items per second that were done in one of the last 4 full rounds. A round lasts
//          from an item's leaving to its being done; it is full if the window was. Rounds that are
//          not full, because the program made no more, can raise it and never lower it.
//   rtt    the smallest time from leaving to done: the network, and one step.
//   gain   2 while the rate grew by a quarter within the last 3 full rounds, then 1.25.
//   burst  what one Done covers beyond one item, at most rate * rtt + 64: they come in frames.
//
// With rate * rtt items in flight the cloud is just busy; what is above is its queue, a quarter of
// a round trip and some milliseconds. Since a queue lengthens what is measured as rtt, the smallest
// is measured anew every 10 seconds, and at once when items take twice as long as the queue
// explains (the path changed, or the steps did): for one round the window is 3/4 of rate * rtt, in
// which nothing can queue. That costs a quarter of a round trip.
//
// Times are on any monotonic clock. Threads: one owner. Nothing here waits or looks at a clock.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>

namespace outboard::transport {

class SendWindow {
 public:
  using Time = std::chrono::nanoseconds;

  // Item `seq` leaves now, behind `in_flight` others; numbers rise by one.
  void OnSent(uint64_t seq, uint64_t in_flight, Time now);
  // Every item up to `seq` is done.
  void OnDone(uint64_t seq, Time now);
  // A new connection, on which items beyond `seq` leave again: what was known of the path is a
  // guess.
  void OnRestart(uint64_t seq, Time now);

  uint64_t items() const;                          // how many may be in flight
  double rate() const;                             // items per second; 0: not known
  Time round_trip() const { return round_trip_; }  // 0: not known

 private:
  // An item whose leaving is remembered: not each, where they follow each other closely.
  struct Mark {
    uint64_t seq;
    Time sent_at;
    uint64_t in_flight;  // before it
    uint64_t done;       // items by then
    Time done_at;        // the last of them
  };
  static constexpr size_t kRounds = 4;
  struct Round {
    double rate = 0;
    uint64_t burst = 0;
  };

  double Product() const;  // rate * rtt
  double RateSince(const Mark& mark, Time now) const;
  bool IsClean(const Mark& mark) const;
  void TakeRoundTrip(const Mark& mark, Time now);
  void EndRound();

  std::deque<Mark> marks_;
  Mark base_{};  // the last that was done
  uint64_t done_seq_ = 0;
  uint64_t done_ = 0;  // items, all epochs together
  Time done_at_{0};

  std::array<Round, kRounds> rounds_;  // the newest is rounds_[round_]
  size_t round_ = 0;
  uint64_t round_end_seq_ = 0;
  bool full_ = false;      // in this round
  double grown_rate_ = 0;  // when it last grew by a quarter
  int flat_rounds_ = 0;    // since

  Time round_trip_{0};
  Time measured_at_{0};
  bool stale_ = false;    // the next clean measurement replaces it
  bool probing_ = false;  // the window is small, so that there is one
};

}  // namespace outboard::transport
