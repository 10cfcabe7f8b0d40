// Where another machine's monotonic clock stands against this one's, proved by the messages that
// passed between them anyway: no message is sent for it. Without I/O.
//
// Law. theirs = ours + offset. What left here at a (ours) and was seen there at b (theirs) proves
// offset <= b - a; what left there at b and was seen here at a proves offset >= b - a. The quickest
// messages prove the most, whichever came in between, so the least of the ones and the greatest of
// the others are kept. The estimate is the middle, exact where both ways take equally long (as
// NTP's, RFC 5905 section 8); it is wrong by no more than half the width, that is, half the least
// round trip.
//
// Clocks of two machines drift apart, so the bounds hold for a window of kWindowNs of our time and
// widen from window to window by what kDriftPpmMax allows. Monotonic clocks count from a machine's
// boot: where an offset of nought is possible in all windows it is one machine, and the offset IS
// nought.
//
// Units: nanoseconds. Errors: none; bounds that contradict each other (a clock that jumps) give
// their middle all the same, and an error that covers both. Threads: one at a time.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

namespace outboard::trace {

inline constexpr uint64_t kWindowNs = 10'000'000'000;
inline constexpr int64_t kDriftPpmMax = 100;  // of two quartzes that nobody disciplines

// Turns the other clock's times into ours.
class ClockMap {
 public:
  uint64_t Ours(uint64_t theirs_ns) const;

  bool known = false;        // was there a message each way?
  bool same_clock = false;   // one machine
  int64_t offset_ns = 0;     // as measured in the last window, also where same_clock says it is 0
  int64_t error_ns_max = 0;  // of the offset, in the worst window

 private:
  friend class ClockBounds;
  // Between two of these the offset goes from one's to the other's in a line, so that what lies
  // within something there does so here.
  struct Knot {
    int64_t theirs_ns, ours_ns;
  };
  std::vector<Knot> knots_;  // rising in both
};

class ClockBounds {
 public:
  // `at_ns`: when that was, on our clock, for the window.
  void AtMost(uint64_t at_ns, int64_t offset_ns);
  void AtLeast(uint64_t at_ns, int64_t offset_ns);
  // `next` says how a third clock stands against theirs; the result, how it stands against ours.
  ClockBounds Then(const ClockBounds& next) const;
  ClockMap Settle() const;

 private:
  struct Window {
    int64_t least, most;
  };
  Window& At(uint64_t at_ns);
  // Those from the first to the last, each tightened by its neighbours.
  std::map<uint64_t, Window> Tightened() const;
  std::map<uint64_t, Window> windows_;  // by at_ns / kWindowNs
};

}  // namespace outboard::trace
