#include "compiler/reference/alu.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "base/check.h"

namespace outboard::reference {
namespace {

template <typename F>
void FloatUnary(const LaneBlock& a, LaneBlock& out, F f) {
  for (size_t k = 0; k < a.f.size(); ++k) out.f[k] = f(a.f[k]);
}

template <typename F>
void FloatBinary(const LaneBlock& a, const LaneBlock& b, LaneBlock& out, F f) {
  for (size_t k = 0; k < a.f.size(); ++k) out.f[k] = f(a.f[k], b.f[k]);
}

template <typename F>
void FloatCompare(const LaneBlock& a, const LaneBlock& b, LaneBlock& out, F f) {
  for (size_t k = 0; k < a.f.size(); ++k) out.i[k] = f(a.f[k], b.f[k]);
}

// Unsigned inside: overflow wraps.
template <typename F>
void IntBinary(const LaneBlock& a, const LaneBlock& b, LaneBlock& out, F f) {
  for (size_t k = 0; k < a.i.size(); ++k)
    out.i[k] =
        static_cast<int64_t>(f(static_cast<uint64_t>(a.i[k]), static_cast<uint64_t>(b.i[k])));
}

template <typename F>
void SignedBinary(const LaneBlock& a, const LaneBlock& b, LaneBlock& out, F f) {
  for (size_t k = 0; k < a.i.size(); ++k) out.i[k] = f(a.i[k], b.i[k]);
}

void RoundTile(DType dtype, LaneBlock& tile) {
  if (dtype == DType::kF64) return;
  if (dtype == DType::kF32) {
    for (double& v : tile.f) v = static_cast<float>(v);
  } else {
    for (double& v : tile.f) v = RoundTo(dtype, v);
  }
}

void WrapTile(DType dtype, LaneBlock& tile) {
  if (ByteWidth(dtype) == 8) return;
  for (int64_t& v : tile.i) v = WrapTo(dtype, v);
}

void FloatAlu(Op op, const LaneBlock& a, const LaneBlock& b, LaneBlock& out) {
  switch (op) {
    case Op::kNeg: return FloatUnary(a, out, [](double x) { return -x; });
    case Op::kExp2: return FloatUnary(a, out, [](double x) { return std::exp2(x); });
    case Op::kLog2: return FloatUnary(a, out, [](double x) { return std::log2(x); });
    case Op::kSin: return FloatUnary(a, out, [](double x) { return std::sin(x); });
    case Op::kSqrt: return FloatUnary(a, out, [](double x) { return std::sqrt(x); });
    case Op::kTrunc: return FloatUnary(a, out, [](double x) { return std::trunc(x); });
    case Op::kExp: return FloatUnary(a, out, [](double x) { return std::exp(x); });
    case Op::kLog: return FloatUnary(a, out, [](double x) { return std::log(x); });
    case Op::kCos: return FloatUnary(a, out, [](double x) { return std::cos(x); });
    case Op::kTanh: return FloatUnary(a, out, [](double x) { return std::tanh(x); });
    case Op::kAdd: return FloatBinary(a, b, out, [](double x, double y) { return x + y; });
    case Op::kMul: return FloatBinary(a, b, out, [](double x, double y) { return x * y; });
    case Op::kFDiv: return FloatBinary(a, b, out, [](double x, double y) { return x / y; });
    case Op::kMax: return FloatBinary(a, b, out, MaxFloat);
    case Op::kCmpLt: return FloatCompare(a, b, out, [](double x, double y) { return x < y; });
    case Op::kCmpNe: return FloatCompare(a, b, out, [](double x, double y) { return x != y; });
    case Op::kCmpEq: return FloatCompare(a, b, out, [](double x, double y) { return x == y; });
    default: OB_CHECK(false && "no operation on floats");
  }
}

// x / 0 is 0; the lowest value / -1 wraps to itself.
int64_t DivideSigned(int64_t x, int64_t y) {
  if (y == 0) return 0;
  if (y == -1) return static_cast<int64_t>(-static_cast<uint64_t>(x));
  return x / y;
}

// x % 0 is x; else the sign of x.
int64_t ModSigned(int64_t x, int64_t y) {
  if (y == 0) return x;
  return y == -1 ? 0 : x % y;
}

void IntAlu(Op op, DType dtype, const LaneBlock& a, const LaneBlock& b, LaneBlock& out) {
  const bool wide_unsigned =
      dtype == DType::kU64;  // the only type whose values an int64_t does not order
  const auto width = static_cast<uint64_t>(8 * ByteWidth(dtype));
  switch (op) {
    case Op::kNeg: return IntBinary(a, a, out, [](uint64_t x, uint64_t) { return -x; });
    case Op::kAdd: return IntBinary(a, b, out, [](uint64_t x, uint64_t y) { return x + y; });
    case Op::kMul: return IntBinary(a, b, out, [](uint64_t x, uint64_t y) { return x * y; });
    case Op::kAnd: return IntBinary(a, b, out, [](uint64_t x, uint64_t y) { return x & y; });
    case Op::kOr: return IntBinary(a, b, out, [](uint64_t x, uint64_t y) { return x | y; });
    case Op::kXor: return IntBinary(a, b, out, [](uint64_t x, uint64_t y) { return x ^ y; });
    case Op::kThreefry: return IntBinary(a, b, out, Threefry);
    case Op::kIDiv:
      if (wide_unsigned)
        return IntBinary(a, b, out, [](uint64_t x, uint64_t y) { return y == 0 ? 0 : x / y; });
      return SignedBinary(a, b, out, DivideSigned);
    case Op::kMod:
      if (wide_unsigned)
        return IntBinary(a, b, out, [](uint64_t x, uint64_t y) { return y == 0 ? x : x % y; });
      return SignedBinary(a, b, out, ModSigned);
    case Op::kMax:
      return SignedBinary(a, b, out, [dtype](int64_t x, int64_t y) { return MaxInt(dtype, x, y); });
    case Op::kCmpLt:
      if (wide_unsigned) return IntBinary(a, b, out, [](uint64_t x, uint64_t y) { return x < y; });
      return SignedBinary(a, b, out, [](int64_t x, int64_t y) { return x < y; });
    case Op::kCmpNe: return SignedBinary(a, b, out, [](int64_t x, int64_t y) { return x != y; });
    case Op::kCmpEq: return SignedBinary(a, b, out, [](int64_t x, int64_t y) { return x == y; });
    // A negative amount is one beyond the width, since amounts are read as unsigned.
    case Op::kShl:
      return IntBinary(a, b, out,
                       [width](uint64_t x, uint64_t y) { return y >= width ? 0 : x << y; });
    case Op::kShr:
      if (wide_unsigned)
        return IntBinary(a, b, out, [](uint64_t x, uint64_t y) { return y >= 64 ? 0 : x >> y; });
      // What is shifted out beyond the width is the sign, and 63 more of it is the same.
      return SignedBinary(a, b, out, [width](int64_t x, int64_t y) {
        return x >> (static_cast<uint64_t>(y) >= width ? 63 : y);
      });
    default: OB_CHECK(false && "no operation on integers");
  }
}

// Towards zero, to the nearest end of the range; NaN is 0.
int64_t FloatToInt(DType to, double x) {
  if (std::isnan(x)) return 0;
  x = std::trunc(x);
  if (to == DType::kU64) {
    if (x <= 0) return 0;
    return static_cast<int64_t>(x >= 0x1p64 ? ~uint64_t{0} : static_cast<uint64_t>(x));
  }
  // IntMax of i64 is no double; 2^63 is the first value beyond it.
  if (x < static_cast<double>(IntMin(to))) return IntMin(to);
  if (to == DType::kI64 ? x >= 0x1p63 : x > static_cast<double>(IntMax(to))) return IntMax(to);
  return static_cast<int64_t>(x);
}

// An integer with its lowest bits folded into one sticky bit, so that it fits a double and still
// rounds to any narrower type as the integer itself would.
double StickyDouble(DType from, int64_t x) {
  const bool negative = from != DType::kU64 && x < 0;
  uint64_t magnitude = negative ? -static_cast<uint64_t>(x) : static_cast<uint64_t>(x);
  const int excess = 11 - std::countl_zero(magnitude | 1);
  if (excess > 0) {
    const bool sticky = magnitude & ((uint64_t{1} << excess) - 1);
    magnitude = (magnitude >> excess | sticky) << excess;
  }
  const auto value = static_cast<double>(magnitude);
  return negative ? -value : value;
}

double IntToFloat(DType from, DType to, int64_t x) {
  if (to == DType::kF64)
    return from == DType::kU64 ? static_cast<double>(static_cast<uint64_t>(x))
                               : static_cast<double>(x);
  return RoundTo(to, StickyDouble(from, x));
}

}  // namespace

double MaxFloat(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<double>::quiet_NaN();
  if (a == b) return std::signbit(a) ? b : a;
  return a < b ? b : a;
}

int64_t MaxInt(DType dtype, int64_t a, int64_t b) {
  if (dtype == DType::kU64) return static_cast<uint64_t>(a) < static_cast<uint64_t>(b) ? b : a;
  return std::max(a, b);
}

void AluTile(Op op, DType dtype, const LaneBlock& a, const LaneBlock& b, LaneBlock& out) {
  const DType result = IsCompare(op) ? DType::kBool : dtype;
  out.Resize(result, static_cast<int64_t>(a.f.size() + a.i.size()));
  if (IsFloat(dtype)) {
    FloatAlu(op, a, b, out);
  } else {
    IntAlu(op, dtype, a, b, out);
  }
  if (IsFloat(result)) {
    RoundTile(result, out);
  } else if (result == dtype) {
    WrapTile(result, out);
  }
}

void CastTile(DType from, DType to, const LaneBlock& x, LaneBlock& out) {
  const size_t count = x.f.size() + x.i.size();
  out.Resize(to, static_cast<int64_t>(count));
  if (IsFloat(to)) {
    if (IsFloat(from)) {
      out.f = x.f;
      RoundTile(to, out);
    } else {
      for (size_t k = 0; k < count; ++k) out.f[k] = IntToFloat(from, to, x.i[k]);
    }
  } else if (IsBool(to)) {
    for (size_t k = 0; k < count; ++k)
      out.i[k] = IsFloat(from) ? x.f[k] != 0 : x.i[k] != 0;  // NaN is true
  } else if (IsFloat(from)) {
    for (size_t k = 0; k < count; ++k) out.i[k] = FloatToInt(to, x.f[k]);
  } else {
    for (size_t k = 0; k < count; ++k) out.i[k] = WrapTo(to, x.i[k]);
  }
}

void BitcastTile(DType from, DType to, const LaneBlock& x, LaneBlock& out) {
  const size_t count = x.f.size() + x.i.size();
  out.Resize(to, static_cast<int64_t>(count));
  for (size_t k = 0; k < count; ++k) {
    char bytes[8] = {};
    if (IsFloat(from)) {
      StoreFloat(from, x.f[k], bytes);
    } else {
      StoreInt(from, x.i[k], bytes);
    }
    if (IsFloat(to)) {
      out.f[k] = LoadFloat(to, bytes);
    } else {
      out.i[k] = LoadInt(to, bytes);
    }
  }
}

uint64_t Threefry(uint64_t counter, uint64_t key) {
  constexpr int kRotations[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
  const auto key0 = static_cast<uint32_t>(key), key1 = static_cast<uint32_t>(key >> 32);
  const uint32_t keys[3] = {key0, key1,
                            key0 ^ key1 ^ 0x1BD11BDA};  // the parity word of the publication
  uint32_t x0 = static_cast<uint32_t>(counter) + keys[0];
  uint32_t x1 = static_cast<uint32_t>(counter >> 32) + keys[1];
  for (int group = 0; group < 5; ++group) {
    for (const int rotation : kRotations[group % 2]) {
      x0 += x1;
      x1 = std::rotl(x1, rotation) ^ x0;
    }
    x0 += keys[(group + 1) % 3];
    x1 += keys[(group + 2) % 3] + static_cast<uint32_t>(group + 1);
  }
  return static_cast<uint64_t>(x1) << 32 | x0;
}

}  // namespace outboard::reference
