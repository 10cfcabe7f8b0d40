// Estimates the offset between another machine's monotonic clock and this one's, with proven
// bounds, from the timestamps of messages that are sent anyway. Without I/O.
//
// Law: theirs = ours + offset. A message sent here at a (ours) and received there at b (theirs)
// proves offset <= b - a; one sent there at b and received here at a proves offset >= b - a. The
// fastest messages give the tightest bounds, so the least upper and the greatest lower bound are
// stored. The estimate is the middle, which is exact if both directions take equally long (as in
// NTP, RFC 5905 section 8); its error is at most half the width, that is, half the least round
// trip.
//
// Clocks of two machines drift apart, so bounds hold for a window of kWindowNs of our time and
// widen from window to window by what kDriftPpmMax allows. Monotonic clocks count from a machine's
// boot: if an offset of 0 is possible in all windows, both are one machine and the offset is
// exactly 0.
//
// Units: nanoseconds. Errors: none; contradictory bounds (a clock that jumps) give their middle and
// an error that covers both. Threads: one at a time.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

namespace outboard::trace {

inline constexpr uint64_t kWindowNs = 10'000'000'000;
inline constexpr int64_t kDriftPpmMax = 100;  // of two undisciplined quartz clocks

// Converts the other clock's times to ours.
class ClockMap {
 public:
  uint64_t Ours(uint64_t theirs_ns) const;

  bool known = false;        // there was a message in each direction
  bool same_clock = false;   // both are one machine
  int64_t offset_ns = 0;     // as measured in the last window, also if same_clock
  int64_t error_ns_max = 0;  // of the offset, in the worst window

 private:
  friend class ClockBounds;
  // Between two knots the offset is interpolated linearly, so that nested intervals remain nested.
  struct Knot {
    int64_t theirs_ns, ours_ns;
  };
  std::vector<Knot> knots_;  // rising in both
};

class ClockBounds {
 public:
  // `at_ns`: the time of the message on our clock; selects the window.
  void AtMost(uint64_t at_ns, int64_t offset_ns);
  void AtLeast(uint64_t at_ns, int64_t offset_ns);
  // `next` relates a third clock to theirs; the result relates it to ours.
  ClockBounds Then(const ClockBounds& next) const;
  ClockMap Settle() const;

 private:
  struct Window {
    int64_t least, most;
  };
  Window& At(uint64_t at_ns);
  // Returns the windows from the first to the last, each tightened by its neighbours.
  std::map<uint64_t, Window> Tightened() const;
  std::map<uint64_t, Window> windows_;  // by at_ns / kWindowNs
};

}  // namespace outboard::trace
