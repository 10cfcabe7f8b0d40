// What is known of a program's integers: the interval of each value, and linear forms of scalars.
#pragma once

#include <limits>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "compiler/program/program.h"

namespace outboard::program {

// Both ends included.
struct ValueInterval {
  int64_t min = std::numeric_limits<int64_t>::min();
  int64_t max = std::numeric_limits<int64_t>::max();

  bool operator==(const ValueInterval&) const = default;
  bool whole() const { return *this == ValueInterval{}; }
  bool FitsI32() const { return min >= INT32_MIN && max <= INT32_MAX; }
};

// The interval of each integer and bool of a program, over all of its lanes; the whole one for u64,
// and for what may wrap. Conditions and masks are not used.
std::vector<ValueInterval> IntervalsOf(const Program& program);

// constant + factor * atom + ..., modulo 2^64. Atoms are values of the program, in their order.
struct Form {
  struct Term {
    ValueId atom = -1;
    uint64_t factor = 0;  // never 0
    bool operator==(const Term&) const = default;
  };
  uint64_t constant = 0;
  absl::InlinedVector<Term, 4> terms;

  bool operator==(const Form&) const = default;
};

Form AddScaled(const Form& a, const Form& b, uint64_t factor);

// A form as multiple * divisor + rest, with multiples of the divisor only in the first, and a
// constant of the rest in [0, divisor).
struct Division {
  Form multiple, rest;
};

// The forms of a program's i64 scalars. A value that a condition compares and that may wrap is an
// atom: what the condition says of it holds of no sum that it is a part of.
class Forms {
 public:
  explicit Forms(const Program& program);

  const Form& Of(ValueId n) const { return forms_[n]; }
  const ValueInterval& IntervalOf(ValueId n) const { return intervals_[n]; }
  bool IsOpaque(ValueId n) const { return opaque_[n]; }

  // The interval of the form as a sum of integers; whole where it may leave i64.
  ValueInterval Range(const Form& form) const;
  static Division Divide(const Form& form, int64_t divisor);

 private:
  Form Compute(ValueId n) const;

  const Program& program_;
  std::vector<ValueInterval> intervals_;
  std::vector<bool> opaque_;
  std::vector<Form> forms_;
};

// x / divisor and x % divisor, of numbers that may be negative, towards minus infinity.
inline int64_t FloorDivide(int64_t x, int64_t divisor) {
  return x / divisor - (x % divisor < 0 ? 1 : 0);
}
inline int64_t FloorModulo(int64_t x, int64_t divisor) {
  return x - FloorDivide(x, divisor) * divisor;
}

}  // namespace outboard::program
