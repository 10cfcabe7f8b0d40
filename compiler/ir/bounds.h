// Interval arithmetic on integers: the bounds every integer node carries (UOp::vmin, vmax).
#pragma once

#include <cstdint>

namespace outboard {

struct UOp;

struct Bounds {
  int64_t min = 0;
  int64_t max = 0;
  friend bool operator==(const Bounds&, const Bounds&) = default;
};

// Bounds of every element of `node`, from its sources' bounds. Sound for wrapping arithmetic: where
// a result could wrap, it is the whole type. {0, 0} for floats and nodes that are no value. u64
// counts as [0, INT64_MAX] only where that is proved, else as [INT64_MIN, INT64_MAX] of its bits.
Bounds BoundsOfNode(const UOp& node);

}  // namespace outboard
