// One list of Opts tried for a kernel, and its result: made by a search, saved in the tuning store
// and passed to the next search. Plain data.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/optimize/opt.h"

namespace outboard::search {

// What the device ran at when a time was taken. 0: not known.
struct Conditions {
  int clock_mhz = 0;  // of what computes
  int power_mw = 0;
  int celsius = 0;

  friend bool operator==(const Conditions&, const Conditions&) = default;
};

// Whether this is much slower than the fastest that the same search has seen: a time taken at it
// says little about the Opts.
inline bool IsThrottled(const Conditions& at, int fastest_mhz) {
  return at.clock_mhz > 0 && at.clock_mhz * 10 < fastest_mhz * 9;
}

struct Trial {
  std::vector<codegen::Opt> opts;
  int64_t time_ns = 0;    // of one run, the least of several; 0: it does not compile, or runs wrong
  bool exact = true;      // false: abandoned, slower than this
  bool verified = false;  // its results were compared (verify.h)
  Conditions at = {};     // read once, after the last of these runs

  bool works() const { return time_ns > 0; }

  friend bool operator==(const Trial&, const Trial&) = default;
};

}  // namespace outboard::search
