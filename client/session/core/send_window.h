// Limits the number of items in flight, that is sent and not yet done: enough that the cloud never
// waits for the next item, but few, because queued items are wasted by a Ctrl-C and delay a fresh
// value.
//
// The control law follows BBR (Cardwell et al., "BBR: Congestion-Based Congestion Control", ACM
// Queue 2016), with items in place of bytes and the executor as the bottleneck:
//
//     window = gain * rate * rtt  +  rate * 5 ms  +  burst  +  1        at least 3
//
//   rate   the highest number of items done per second in one of the last 4 full rounds. A round
//          lasts from the sending of an item until it is done; it is full if the window was. Rounds
//          that are not full, because the program sent fewer items, can raise the rate but never
//          lower it.
//   rtt    the smallest time from sending to done: the network, and one step.
//   gain   2 if the rate grew by a quarter within the last 3 full rounds, else 1.25.
//   burst  the items that one Done covers beyond the first, at most rate * rtt + 64: they come in
//          frames.
//
// rate * rtt items in flight are just enough to keep the cloud busy; the excess is its queue, a
// quarter of a round trip plus some milliseconds. Because a queue increases the measured rtt, the
// minimum is measured again every 10 seconds, and at once if items take twice as long as the queue
// explains (the path or the steps changed): for one round the window is 3/4 of rate * rtt, so that
// nothing can queue. That costs a quarter of a round trip.
//
// Times are on any monotonic clock. Threads: one owner. This class neither waits nor reads a clock.
// It has no errors.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>

namespace outboard::session {

class SendWindow {
 public:
  using Time = std::chrono::nanoseconds;

  // Item `seq` is sent now, after `in_flight` others; numbers increase by one.
  void OnSent(uint64_t seq, uint64_t in_flight, Time now);
  // Every item up to `seq` is done.
  void OnDone(uint64_t seq, Time now);
  // A new connection, on which items after `seq` are sent again. Measurements of the old path are
  // used as initial guesses.
  void OnRestart(uint64_t seq, Time now);

  uint64_t items() const;                          // how many may be in flight
  double rate() const;                             // items per second; 0: unknown
  Time round_trip() const { return round_trip_; }  // 0: unknown

 private:
  // An item whose time of sending is recorded; not every item, if they are sent in quick
  // succession.
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
  Mark base_{};  // the last one that was done
  uint64_t done_seq_ = 0;
  uint64_t done_ = 0;  // items, all epochs together
  Time done_at_{0};

  std::array<Round, kRounds> rounds_;  // the newest is rounds_[round_]
  size_t round_ = 0;
  uint64_t round_end_seq_ = 0;
  bool full_ = false;      // in this round
  double grown_rate_ = 0;  // when it last grew by a quarter
  int flat_rounds_ = 0;    // full rounds since then

  Time round_trip_{0};
  Time measured_at_{0};
  bool stale_ = false;    // the next measurement without a queue replaces it
  bool probing_ = false;  // the window is small, to get such a measurement
};

}  // namespace outboard::session
