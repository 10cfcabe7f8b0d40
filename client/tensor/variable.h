// Symbolic integers: sizes and offsets that change from run to run of a program compiled once.
//
//   const Variable length("length", 1, 1024);
//   for (int64_t n = 1; n <= 1024; ++n) {
//     const SymInt rows = length.bind(n);
//     Tensor sum = cache.slice(0, 0, rows).sum(0);    // the same graph for every n
//   }
//
// The name, range and meaning are tinygrad's. A SymInt is accepted as a size or an offset (reshape,
// expand, pad, shrink, slice) and as a number in arithmetic. A tensor with a symbolic size is
// computed like any other; once it is realised its sizes are numbers (but those of an argument of a
// step that is recorded: client/capture/jit.h).
//
// Errors (thrown as outboard::Error, error.h): INVALID_ARGUMENT for an empty range, a value outside
// of it, a part of a tensor that does not fit for the bound value, two values or two ranges for one
// name in one computation, and operators that do not support a symbolic size. The message names the
// variable or the shape.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "client/tensor/error.h"

namespace outboard {

class SymInt;

// A name and the range of values it may be bound to. Variables of equal name and range are equal.
class Variable {
 public:
  Variable(std::string name, int64_t min, int64_t max, At at = At::current());

  SymInt bind(int64_t value, At at = At::current()) const;

  const std::string& name() const { return name_; }
  int64_t min() const { return min_; }
  int64_t max() const { return max_; }
  friend bool operator==(const Variable&, const Variable&) = default;

 private:
  std::string name_;
  int64_t min_, max_;
};

namespace internal {

// A Variable and the value it is bound to.
struct BoundVariable {
  Variable variable;
  int64_t value;
};

struct SymExpression;

}  // namespace internal

// A size or an offset: a number, or an expression over bound variables and numbers.
class SymInt {
 public:
  SymInt() : SymInt(0) {}
  SymInt(std::integral auto number) : value_(static_cast<int64_t>(number)) {}  // NOLINT

  bool is_number() const { return expression_ == nullptr; }
  int64_t value() const { return value_; }  // its current value, also if it is symbolic

  // Semantics of i64. `/` rounds towards zero; x / 0 is 0 and x % 0 is x.
  friend SymInt operator+(const SymInt& a, const SymInt& b);
  friend SymInt operator-(const SymInt& a, const SymInt& b);
  friend SymInt operator*(const SymInt& a, const SymInt& b);
  friend SymInt operator/(const SymInt& a, const SymInt& b);
  friend SymInt operator%(const SymInt& a, const SymInt& b);

  // ---- for the library
  const internal::SymExpression* expression() const { return expression_.get(); }
  static SymInt Of(int64_t value, internal::SymExpression expression);

 private:
  int64_t value_;
  std::shared_ptr<const internal::SymExpression> expression_;  // null: a number
};

struct SymShape : std::vector<SymInt> {
  SymShape() = default;
  SymShape(std::initializer_list<SymInt> sizes) : std::vector<SymInt>(sizes) {}  // NOLINT
  SymShape(const std::vector<int64_t>& dims)
      : std::vector<SymInt>(dims.begin(), dims.end()) {}  // NOLINT
};

// Two per axis: {before, after} of a pad, {begin, end} of a shrink.
using SymIntPairs = std::vector<std::pair<SymInt, SymInt>>;

}  // namespace outboard
