// Powers: of integers by squaring, of floats by logarithms.
#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "client/lazy/operands.h"
#include "client/ops/elementwise/arithmetic.h"
#include "client/ops/elementwise/float_functions.h"

namespace outboard {

using internal::NodeBuilder;
using internal::NodeExpr;
using internal::TensorOf;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Whether the sign bit is set: also of -0.
NodeExpr HasSign(const NodeExpr& x) {
  const DType bits = ByteWidth(x->dtype) == 1   ? DType::kI8
                     : ByteWidth(x->dtype) == 2 ? DType::kI16
                     : ByteWidth(x->dtype) == 4 ? DType::kI32
                                                : DType::kI64;
  return Bitcast(x, bits) < 0;
}

// x^n, n >= 1, by squaring (Knuth, The Art of Computer Programming 2, 4.6.3, from the lowest bit
// on): exact signs, no logarithm. Integers wrap.
NodeExpr BySquaring(NodeExpr square, uint64_t n) {
  for (; n % 2 == 0; n /= 2) square = square * square;
  NodeExpr result = square;
  for (n /= 2; n != 0; n /= 2) {
    square = square * square;
    if (n % 2 == 1) result = result * square;
  }
  return result;
}

// a^y = exp2(y log2 a), whose gradient is that of a power (compiler/gradient/gradient.h).
NodeExpr ByLogarithm(const NodeExpr& a, const NodeExpr& y) { return Exp2(y * Log2(a)); }
NodeExpr ByLogarithm(const NodeExpr& a, double exponent) { return Exp2(Log2(a) * exponent); }

// Powers of -infinity are those of infinity; other negative numbers have none that is not whole.
NodeExpr WithoutMinusInfinity(const NodeExpr& x) { return Where(x == -kInfinity, -x, x); }

NodeExpr FloatToNumber(const NodeExpr& x, double exponent) {
  const double size = std::abs(exponent);
  if (size == 0) return x.Full(1);
  if (size == 0.5 && exponent > 0) return Sqrt(x);
  if (size != std::trunc(size)) return ByLogarithm(WithoutMinusInfinity(x), exponent);
  // The reciprocal first: its slope at 0 and at infinity is that of the power.
  if (size <= 64) return BySquaring(exponent < 0 ? 1 / x : x, static_cast<uint64_t>(size));
  const NodeExpr is_negative = HasSign(x);
  const NodeExpr power = ByLogarithm(Where(is_negative, -x, x), exponent);
  return std::fmod(size, 2) == 1 ? Where(is_negative, -power, power) : power;
}

// IEEE 754's pow: 1 for a base of 1 or an exponent of 0, whatever the other is.
NodeExpr OfFloats(const NodeExpr& x, const NodeExpr& y) {
  const auto power = [&](const NodeExpr& a, const NodeExpr& y) {
    const NodeExpr has_no_log = (a == 0) | (a == kInfinity) | IsNan(a);
    const NodeExpr is_unbounded = (y == kInfinity) | (y == -kInfinity) | IsNan(y);
    return ByLogarithm(Where((y == 0) & has_no_log, 1, a), Where((a == 1) & is_unbounded, 0, y));
  };
  // A negative base has powers where y is whole, but none beside them: no slope in y. So its power
  // is of a y that is detached, and the slope is that of the other branch, which is NaN there.
  const NodeExpr is_negative = HasSign(x), is_whole = y == Trunc(y);
  const NodeExpr size = Where(is_negative, Where(is_whole | (x == -kInfinity), -x, x), 1);
  const NodeExpr of_negative = power(size, y.Detach());
  const NodeExpr of_positive = power(Where(is_negative, x.Detach(), x), y);
  return Where(is_negative, Where(is_whole & IsOdd(y), -of_negative, of_negative), of_positive);
}

// Bit by bit of y. A negative y: 1 / x^|y| is a whole number for x = 1 and -1 only.
NodeExpr OfIntegers(const NodeExpr& x, const NodeExpr& y) {
  const auto number = [&](int64_t value) { return x.FullInt(value); };
  const auto bit = [&](int place) {
    const NodeExpr moved = place == 0 ? y : y >> number(place);
    return (moved & number(1)) == number(1);
  };
  const int bits = 8 * ByteWidth(x->dtype) - (IsSigned(x->dtype) ? 1 : 0);
  NodeExpr result = Where(bit(0), x, number(1));
  NodeExpr square = x;
  for (int place = 1; place < bits; ++place) {
    square = square * square;
    result = Where(bit(place), result * square, result);
  }
  if (!IsSigned(x->dtype)) return result;
  const NodeExpr of_one = Where(x == number(1), number(1), number(0));
  const NodeExpr whole = Where(x == number(-1), Where(bit(0), number(-1), number(1)), of_one);
  return Where(y < number(0), whole, result);
}

NodeExpr IntegerToNumber(const NodeExpr& x, int64_t exponent) {
  if (exponent < 0)
    ThrowInvalid(absl::StrCat("pow: ", std::string(Name(x->dtype)), " to the power of ", exponent,
                              " is no integer; cast the base to a float"));
  return exponent == 0 ? x.Full(1) : BySquaring(x, static_cast<uint64_t>(exponent));
}

}  // namespace

Tensor pow(const Arg& base, const Arg& exponent) {
  const NodeBuilder rec(base.at());
  if (base.is_tensor() && !exponent.is_tensor() && exponent.kind() != Arg::Kind::kSize) {
    NodeExpr x = ExprOf(rec, base.tensor());
    if (IsBool(x->dtype)) x = x.Cast(DType::kI32);
    if (!IsFloat(x->dtype) && exponent.kind() != Arg::Kind::kFloat)
      return TensorOf(IntegerToNumber(x, exponent.int_value()));
    if (std::isfinite(exponent.float_value()))
      return TensorOf(FloatToNumber(x.Cast(FloatOf(x->dtype)), exponent.float_value()));
  }
  const auto [a, b] = internal::Promoted(rec, base, exponent, "pow");
  const NodeExpr x(rec, a), y(rec, b);
  // 2^y, where nothing of the above can happen.
  if (!base.is_tensor() && base.float_value() > 1 && IsFloat(x->dtype))
    return TensorOf(ByLogarithm(x, y));
  if (IsFloat(x->dtype)) return TensorOf(OfFloats(x, y));
  const DType dtype = IsBool(x->dtype) ? DType::kI32 : x->dtype;
  return TensorOf(OfIntegers(x.Cast(dtype), y.Cast(dtype)));
}

}  // namespace outboard
