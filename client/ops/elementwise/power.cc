// Powers: of integers by squaring, of floats by logarithms.
#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "client/lazy/operands.h"
#include "client/ops/elementwise/arithmetic.h"
#include "client/ops/elementwise/float_functions.h"

namespace outboard {

using internal::Less;
using internal::Neg;
using internal::NodeBuilder;
using internal::Operands;
using internal::Over;

namespace {

// x^n, n >= 1, by squaring: exact signs, no logarithm. Integers wrap.
const UOp* BySquaring(const NodeBuilder& rec, const UOp* x, uint64_t n) {
  const UOp* result = nullptr;
  for (const UOp* square = x;; square = rec.Mul(square, square)) {
    if (n % 2 == 1) result = result == nullptr ? square : rec.Mul(result, square);
    n /= 2;
    if (n == 0) return result;
  }
}

const UOp* FloatToNumber(const NodeBuilder& rec, const UOp* x, double exponent) {
  const double size = std::abs(exponent);
  if (size == 0) return rec.FullLike(x, 1);
  if (size <= 64 && size == std::trunc(size)) {
    const UOp* const power = BySquaring(rec, x, static_cast<uint64_t>(size));
    return exponent < 0 ? Over(rec, rec.FullLike(x, 1), power) : power;
  }
  if (exponent == 0.5) return rec.Alu(Op::kSqrt, x);
  return rec.Alu(Op::kExp2, rec.Scale(rec.Alu(Op::kLog2, x), exponent));
}

// |x|^y by logarithms, then the sign: NaN for a negative x and a y that is no integer.
const UOp* OfFloats(const NodeBuilder& rec, const UOp* x, const UOp* y) {
  const UOp* const zero = rec.FullLike(x, 0);
  const UOp* const one = rec.FullLike(x, 1);
  const UOp* const size = rec.Alu(Op::kMax, x, Neg(rec, x));
  const UOp* const power = rec.Alu(Op::kExp2, rec.Mul(y, rec.Alu(Op::kLog2, size)));
  const UOp* const half = rec.Scale(y, 0.5);
  const UOp* const odd = rec.Alu(Op::kCmpNe, half, rec.Alu(Op::kTrunc, half));
  const UOp* const broken = rec.Alu(Op::kCmpNe, y, rec.Alu(Op::kTrunc, y));
  const UOp* const turned =
      rec.Where(broken, rec.FullLike(x, std::numeric_limits<double>::quiet_NaN()),
                rec.Where(odd, Neg(rec, power), power));
  const UOp* const result = rec.Where(Less(rec, x, zero), turned, power);
  return rec.Where(rec.Alu(Op::kCmpEq, y, zero), one, result);  // also of 0, whose log is -inf
}

// Bit by bit of y. A negative y: 1 / x^|y| is a whole number for x = 1 and -1 only.
const UOp* OfIntegers(const NodeBuilder& rec, const UOp* x, const UOp* y) {
  const auto number = [&](int64_t value) {
    return rec.Full(rec.ConstInt(x->dtype, value), x->shape);
  };
  const auto is = [&](const UOp* of, int64_t value) {
    return rec.Alu(Op::kCmpEq, of, number(value));
  };
  const auto bit = [&](int place) {
    const UOp* const moved = place == 0 ? y : rec.Alu(Op::kShr, y, number(place));
    return is(rec.Alu(Op::kAnd, moved, number(1)), 1);
  };
  const int bits = 8 * ByteWidth(x->dtype) - (IsSigned(x->dtype) ? 1 : 0);
  const UOp* result = rec.Where(bit(0), x, number(1));
  const UOp* square = x;
  for (int place = 1; place < bits; ++place) {
    square = rec.Mul(square, square);
    result = rec.Where(bit(place), rec.Mul(result, square), result);
  }
  if (!IsSigned(x->dtype)) return result;
  const UOp* const whole = rec.Where(is(x, -1), rec.Where(bit(0), number(-1), number(1)),
                                     rec.Where(is(x, 1), number(1), number(0)));
  return rec.Where(Less(rec, y, number(0)), whole, result);
}

const UOp* IntegerToNumber(const NodeBuilder& rec, const UOp* x, int64_t exponent) {
  if (exponent < 0)
    rec.Invalid(absl::StrCat("pow: ", std::string(Name(x->dtype)), " to the power of ", exponent,
                             " is no integer; cast the base to a float"));
  return exponent == 0 ? rec.FullLike(x, 1) : BySquaring(rec, x, static_cast<uint64_t>(exponent));
}

}  // namespace

Tensor pow(const Arg& base, const Arg& exponent) {
  const NodeBuilder rec(base.at());
  if (base.is_tensor() && !exponent.is_tensor() && exponent.kind() != Arg::Kind::kSize) {
    const UOp* x = base.tensor().NodeIn(rec);
    if (IsBool(x->dtype)) x = rec.Cast(x, DType::kI32);
    if (!IsFloat(x->dtype) && exponent.kind() != Arg::Kind::kFloat)
      return Tensor::FromNode(rec, IntegerToNumber(rec, x, exponent.int_value()));
    return Tensor::FromNode(
        rec, FloatToNumber(rec, rec.Cast(x, FloatOf(x->dtype)), exponent.float_value()));
  }
  const auto [x, y] = internal::Promoted(rec, base, exponent, "pow");
  if (IsFloat(x->dtype)) return Tensor::FromNode(rec, OfFloats(rec, x, y));
  const DType dtype = IsBool(x->dtype) ? DType::kI32 : x->dtype;
  return Tensor::FromNode(rec, OfIntegers(rec, rec.Cast(x, dtype), rec.Cast(y, dtype)));
}

}  // namespace outboard
