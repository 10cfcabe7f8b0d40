// One choice of Opts for a kernel, and how it went: what a search makes, a store keeps and the next
// search is handed back. Plain data.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/optimize/opt.h"

namespace outboard::search {

struct Trial {
  std::vector<codegen::Opt> opts;
  int64_t time_ns = 0;    // of one run, the least of several; 0: it does not compile, or runs wrong
  bool exact = true;      // false: given up on, slower than this
  bool verified = false;  // its results were compared with those of plain loops

  bool works() const { return time_ns > 0; }

  friend bool operator==(const Trial&, const Trial&) = default;
};

}  // namespace outboard::search
