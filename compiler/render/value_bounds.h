// Bounds of the integers of a program, from constants, counters and VARs. They decide which values
// have 32 bits and where an address has a sign, so a bound that does not hold is a wrong result.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/program/program.h"

namespace outboard::render {

// The least and the greatest value.
struct ValueBounds {
  int64_t min = INT64_MIN;
  int64_t max = INT64_MAX;
};

// By value: bounds of all its lanes. What is no integer, and every u64, has the widest ones.
std::vector<ValueBounds> BoundsOf(const program::Program& program);

// Whether it is an i64 that cannot leave 32 bits.
bool FitsIn32Bits(const program::Instruction& instruction, const ValueBounds& bounds);
// Whether 32 bits are enough to compute it: they are for its sources, and for itself unless it
// compares them.
bool IsComputedIn32Bits(const program::Program& program, const std::vector<ValueBounds>& bounds,
                        program::ValueId n);

// Returns by instruction a power of two, up to kDivisorMax, that divides each i64 scalar; 1 for
// other values.
inline constexpr int64_t kDivisorMax = 1024;
std::vector<int64_t> DivisorsOf(const program::Program& program);

}  // namespace outboard::render
