// Interval arithmetic on integers: the bounds every integer node carries (UOp::vmin, vmax).
//
// Bounds are of the bits as int64_t, which is the value itself for every type but u64. A u64 within
// [0, 2^63) has its values for bounds, one within [2^63, 2^64) has them less 2^64, both negative;
// where it may be on either side nothing is known, [INT64_MIN, INT64_MAX]. So vmin >= 0 always
// means that the bounds are those of the values, and ValuesOf gives them in any case.
#pragma once

#include <cstdint>

#include "compiler/ir/dtype.h"

namespace outboard {

struct UOp;

struct Bounds {
  int64_t min = 0;
  int64_t max = 0;
  friend bool operator==(const Bounds&, const Bounds&) = default;
};

// Bounds of every element of `node`, from its sources' bounds. Sound for wrapping arithmetic: where
// a result could wrap, it is the whole type. {0, 0} for floats and nodes that are no value.
Bounds BoundsOfNode(const UOp& node);

using Wide = __int128;

// What the elements of an integer or bool node can be, as numbers.
struct ValueRange {
  Wide min = 0;
  Wide max = 0;
};
ValueRange ValuesOf(const UOp& node);

// Whether every element of an integer or bool node is a number of this integer type.
bool HoldsAll(DType dtype, const UOp& node);

}  // namespace outboard
