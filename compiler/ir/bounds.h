// Interval arithmetic on integers: the bounds every integer node carries (UOp::vmin, vmax).
//
// Bounds are those of the bits read as int64_t, which is the value itself for every type but u64.
// For a u64 within [0, 2^63) the bounds are those of its values; for one within [2^63, 2^64) they
// are those less 2^64, so both are negative; for one that may be on either side they are
// [INT64_MIN, INT64_MAX]. So vmin >= 0 always means that the bounds are those of the values;
// ValuesOf returns the bounds of the values in every case.
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

// Returns bounds of every element of `node`, from its sources' bounds. Sound for wrapping
// arithmetic: if a result could wrap, the bounds are those of the whole type. {0, 0} for floats and
// nodes without a value.
Bounds BoundsOfNode(const UOp& node);

using Wide = __int128;

// The smallest and largest value of the elements of an integer or bool node, as numbers.
struct ValueRange {
  Wide min = 0;
  Wide max = 0;
};
ValueRange ValuesOf(const UOp& node);

// Returns whether this integer type can represent every element of an integer or bool node.
bool HoldsAll(DType dtype, const UOp& node);

}  // namespace outboard
