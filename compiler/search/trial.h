// One list of Opts tried for a kernel, and its result: made by a search, saved in the tuning store
// and passed to the next search. Plain data.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/optimize/opt.h"

namespace outboard::search {

struct Trial {
  std::vector<codegen::Opt> opts;
  int64_t time_ns = 0;    // of one run, the least of several; 0: it does not compile, or runs wrong
  bool exact = true;      // false: abandoned, slower than this
  bool verified = false;  // its results were compared with those of plain loops

  bool works() const { return time_ns > 0; }

  friend bool operator==(const Trial&, const Trial&) = default;
};

}  // namespace outboard::search
