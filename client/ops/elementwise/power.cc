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

NodeExpr FloatToNumber(const NodeExpr& x, double exponent) {
  const double size = std::abs(exponent);
  if (size == 0) return x.Full(1);
  if (size <= 64 && size == std::trunc(size)) {
    const NodeExpr power = BySquaring(x, static_cast<uint64_t>(size));
    return exponent < 0 ? 1 / power : power;
  }
  return exponent == 0.5 ? Sqrt(x) : Exp2(Log2(x) * exponent);
}

// |x|^y by logarithms, then the sign: NaN for a negative x and a y that is no integer.
NodeExpr OfFloats(const NodeExpr& x, const NodeExpr& y) {
  const NodeExpr power = Exp2(y * Log2(Abs(x)));
  const NodeExpr is_broken = y != Trunc(y);
  const NodeExpr turned =
      Where(is_broken, std::numeric_limits<double>::quiet_NaN(), Where(IsOdd(y), -power, power));
  return Where(y == 0, 1, Where(x < 0, turned, power));  // also of 0, whose log is -inf
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
    return TensorOf(FloatToNumber(x.Cast(FloatOf(x->dtype)), exponent.float_value()));
  }
  const auto [a, b] = internal::Promoted(rec, base, exponent, "pow");
  const NodeExpr x(rec, a), y(rec, b);
  if (IsFloat(x->dtype)) return TensorOf(OfFloats(x, y));
  const DType dtype = IsBool(x->dtype) ? DType::kI32 : x->dtype;
  return TensorOf(OfIntegers(x.Cast(dtype), y.Cast(dtype)));
}

}  // namespace outboard
