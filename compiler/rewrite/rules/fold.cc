#include "compiler/rewrite/rules/fold.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace outboard {
namespace {

bool Less(DType dtype, int64_t a, int64_t b) {
  return dtype == DType::kU64 ? static_cast<uint64_t>(a) < static_cast<uint64_t>(b) : a < b;
}

int64_t Divide(DType dtype, int64_t a, int64_t b) {
  if (b == 0) return 0;
  if (dtype == DType::kU64)
    return static_cast<int64_t>(static_cast<uint64_t>(a) / static_cast<uint64_t>(b));
  return b == -1 ? static_cast<int64_t>(0 - static_cast<uint64_t>(a)) : a / b;
}

int64_t Modulo(DType dtype, int64_t a, int64_t b) {
  if (b == 0) return a;
  if (dtype == DType::kU64)
    return static_cast<int64_t>(static_cast<uint64_t>(a) % static_cast<uint64_t>(b));
  return b == -1 ? 0 : a % b;
}

int64_t ShiftRight(DType dtype, int64_t a, uint64_t by) {
  if (dtype == DType::kU64)
    return by >= 64 ? 0 : static_cast<int64_t>(static_cast<uint64_t>(a) >> by);
  return a >> std::min<uint64_t>(by, 63);  // values are kept sign-extended, or not negative
}

// Towards zero, to the nearest end of the range; NaN is 0.
int64_t FloatToInt(DType to, double value) {
  if (std::isnan(value)) return 0;
  if (to == DType::kU64) {
    if (value <= 0) return 0;
    return value >= 0x1p64 ? -1 : static_cast<int64_t>(static_cast<uint64_t>(value));
  }
  if (value <= static_cast<double>(IntMin(to))) return IntMin(to);
  if (value >= (to == DType::kI64 ? 0x1p63 : static_cast<double>(IntMax(to)))) return IntMax(to);
  return static_cast<int64_t>(value);
}

}  // namespace

std::optional<int64_t> FoldInt(Op op, DType dtype, int64_t a, int64_t b) {
  const auto ua = static_cast<uint64_t>(a), ub = static_cast<uint64_t>(b);
  const auto wrap = [dtype](uint64_t value) { return WrapTo(dtype, static_cast<int64_t>(value)); };
  switch (op) {
    case Op::kNeg: return wrap(0 - ua);
    case Op::kAdd: return wrap(ua + ub);
    case Op::kMul: return wrap(ua * ub);
    case Op::kIDiv: return wrap(static_cast<uint64_t>(Divide(dtype, a, b)));
    case Op::kMod: return Modulo(dtype, a, b);
    case Op::kMax: return Less(dtype, a, b) ? b : a;
    case Op::kCmpLt: return Less(dtype, a, b);
    case Op::kCmpNe: return a != b;
    case Op::kCmpEq: return a == b;
    case Op::kAnd: return a & b;
    case Op::kOr: return a | b;
    case Op::kXor: return a ^ b;
    case Op::kShl: return ub >= static_cast<uint64_t>(8 * ByteWidth(dtype)) ? 0 : wrap(ua << ub);
    case Op::kShr: return ShiftRight(dtype, a, ub);
    default: return std::nullopt;
  }
}

std::optional<double> FoldFloat(Op op, DType dtype, double a, double b) {
  switch (op) {
    case Op::kNeg: return RoundTo(dtype, -a);
    case Op::kSqrt: return RoundTo(dtype, std::sqrt(a));
    case Op::kTrunc: return RoundTo(dtype, std::trunc(a));
    case Op::kAdd: return RoundTo(dtype, a + b);
    case Op::kMul: return RoundTo(dtype, a * b);
    case Op::kFDiv: return RoundTo(dtype, a / b);
    case Op::kMax:
      if (std::isnan(a) || std::isnan(b))
        return RoundTo(dtype, std::numeric_limits<double>::quiet_NaN());
      if (a == b) return std::signbit(a) ? b : a;
      return std::max(a, b);
    default: return std::nullopt;
  }
}

bool FoldFloatCompare(Op op, double a, double b) {
  return op == Op::kCmpLt ? a < b : op == Op::kCmpEq ? a == b : a != b;
}

std::optional<int64_t> FoldCast(DType from, DType to, int64_t bits) {
  if (!IsFloat(from)) {
    if (!IsFloat(to)) return WrapTo(to, bits);
    // Exact in a double, so that RoundTo rounds once. Others are left to the machine that runs the
    // graph.
    constexpr int64_t kExact = int64_t{1} << 53;
    if (bits < -kExact || bits > kExact) return std::nullopt;
    const auto value = static_cast<double>(bits);
    if (from == DType::kU64 && bits < 0) return std::nullopt;
    // To the narrow floats a backend may go through f32.
    const bool narrow = to != DType::kF32 && to != DType::kF64;
    if (narrow && static_cast<double>(static_cast<float>(value)) != value) return std::nullopt;
    return std::bit_cast<int64_t>(RoundTo(to, value));
  }
  const double value = std::bit_cast<double>(bits);
  if (IsBool(to)) return value != 0;
  if (!IsFloat(to)) return FloatToInt(to, value);
  const bool narrow = to != DType::kF32 && to != DType::kF64;
  if (narrow && from == DType::kF64 && std::isfinite(value) &&
      static_cast<double>(static_cast<float>(value)) != value)
    return std::nullopt;
  return std::bit_cast<int64_t>(RoundTo(to, value));
}

}  // namespace outboard
