#include "tests/gpu/ptx/numbers.h"

#include <array>

namespace outboard::ptx {

uint32_t Encode(double value, FloatFormat format, Rounding rounding, bool saturate) {
  const int m = format.mantissa_bits;
  const int bias = (1 << (format.exponent_bits - 1)) - 1;
  const int top = (1 << format.exponent_bits) - 1;  // the exponent of infinity and NaN
  const uint32_t sign = std::signbit(value) ? 1u << (format.exponent_bits + m) : 0;
  const uint32_t all = (uint32_t{1} << (format.exponent_bits + m)) - 1;
  if (std::isnan(value)) return all;  // the canonical NaN has all bits but the sign
  const uint32_t infinity = static_cast<uint32_t>(top) << m;
  const uint32_t largest = format.has_infinity ? infinity - 1 : all - 1;
  const uint32_t overflow = saturate ? largest : format.has_infinity ? infinity : all;
  const double magnitude = std::fabs(value);
  if (std::isinf(value)) return sign | overflow;
  if (magnitude == 0) return sign;
  int exponent = 0;
  std::frexp(magnitude, &exponent);  // magnitude = f * 2^exponent, f in [0.5, 1)
  int unit = exponent - 1 - m;       // the weight of the last bit
  if (unit < 1 - bias - m) unit = 1 - bias - m;
  const double scaled = std::ldexp(magnitude, -unit);  // exact, below 2^(m + 1)
  double whole = std::floor(scaled);
  const double rest = scaled - whole;
  bool up = false;
  switch (rounding) {
    case Rounding::kNearest: up = rest > 0.5 || (rest == 0.5 && std::fmod(whole, 2) != 0); break;
    case Rounding::kAway: up = rest >= 0.5; break;
    case Rounding::kZero: break;
    case Rounding::kDown: up = rest > 0 && sign != 0; break;
    case Rounding::kUp: up = rest > 0 && sign == 0; break;
  }
  if (up) whole += 1;
  // Consecutive codes are consecutive values, so that a carry into the exponent is right by itself.
  const int biased = unit + m + bias;  // 1 for subnormal and for the smallest normal values
  const uint64_t code = static_cast<uint64_t>(whole) + (static_cast<uint64_t>(biased - 1) << m);
  if (code > largest) {
    const bool to_largest = rounding == Rounding::kZero ||
                            (rounding == Rounding::kDown && sign == 0) ||
                            (rounding == Rounding::kUp && sign != 0);
    return sign | (to_largest ? largest : overflow);
  }
  return sign | static_cast<uint32_t>(code);
}

double Decode(uint32_t bits, FloatFormat format) {
  const int m = format.mantissa_bits;
  const int bias = (1 << (format.exponent_bits - 1)) - 1;
  const int top = (1 << format.exponent_bits) - 1;
  const int exponent = static_cast<int>(bits >> m) & top;
  const uint32_t mantissa = bits & ((1u << m) - 1);
  const double sign = (bits >> (format.exponent_bits + m)) & 1 ? -1.0 : 1.0;
  if (exponent == top) {
    if (format.has_infinity) return mantissa != 0 ? NAN : sign * INFINITY;
    if (mantissa == (1u << m) - 1) return NAN;
  }
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - m);
  return sign * std::ldexp(mantissa + (1u << m), exponent - bias - m);
}

namespace {
// `rounded` is exact + error: makes its last bit odd unless the error is zero.
double MakeOdd(double rounded, double error) {
  if (error == 0 || !std::isfinite(rounded) || std::isnan(error)) return rounded;
  uint64_t bits = std::bit_cast<uint64_t>(rounded);
  if (bits & 1) return rounded;
  // The exact value lies between `rounded` and its neighbour towards the error; the odd one of both.
  const bool away = (error > 0) == (rounded > 0);
  return std::bit_cast<double>(away ? bits + 1 : bits - 1);
}
}  // namespace

double OddAdd(double a, double b) {
  const double sum = a + b;
  const double b_part = sum - a;
  return MakeOdd(sum, (a - (sum - b_part)) + (b - b_part));
}
double OddMul(double a, double b) {
  const double product = a * b;
  return MakeOdd(product, std::fma(a, b, -product));
}
double OddFma(double a, double b, double c) {
  // For formats with at most 26 bits of mantissa: the product is exact.
  return OddAdd(a * b, c);
}

float HalfToFloat(uint16_t bits) {
  static const auto table = [] {
    auto* values = new std::array<float, 65536>;
    for (uint32_t i = 0; i < 65536; ++i)
      (*values)[i] = static_cast<float>(Decode(i, kHalfFormat));
    return values;
  }();
  return (*table)[bits];
}
uint16_t FloatToHalf(float value) { return static_cast<uint16_t>(Encode(value, kHalfFormat)); }

uint16_t FloatToBfloat(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return kNanHalf;
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

}  // namespace outboard::ptx
