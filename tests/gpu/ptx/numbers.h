// The number formats of PTX that C++ lacks: f16, bf16, tf32 and the two 8-bit floats.
//
// A value is its bits in an unsigned integer. Each format is narrower than double, so that a result is computed
// in double, rounded to odd (`Odd...`), and rounded a second time to the format: that is the correctly rounded
// result, since double has more than two bits beyond every format (Boldo and Melquiond, 2008).
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace outboard::ptx {

enum class Rounding : uint8_t { kNearest, kZero, kDown, kUp, kAway };

// A binary format: bits of the exponent and the stored mantissa.
struct FloatFormat {
  int exponent_bits;
  int mantissa_bits;
  bool has_infinity;  // e4m3 has none: its largest code is NaN
};
inline constexpr FloatFormat kHalfFormat = {5, 10, true};
inline constexpr FloatFormat kBfloatFormat = {8, 7, true};
inline constexpr FloatFormat kE4m3Format = {4, 3, false};
inline constexpr FloatFormat kE5m2Format = {5, 2, true};
inline constexpr FloatFormat kTf32Format = {8, 10, true};

// `value` in `format`. With `saturate`, what is too large becomes the largest finite value.
uint32_t Encode(double value, FloatFormat format, Rounding rounding = Rounding::kNearest,
                bool saturate = false);
double Decode(uint32_t bits, FloatFormat format);

// Sums, products and so on in double, rounded to odd.
double OddAdd(double a, double b);
double OddMul(double a, double b);
double OddFma(double a, double b, double c);

float HalfToFloat(uint16_t bits);
inline float BfloatToFloat(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }
uint16_t FloatToHalf(float value);
uint16_t FloatToBfloat(float value);

inline float FlushDenormal(float value) {
  return std::fpclassify(value) == FP_SUBNORMAL ? std::copysign(0.0f, value) : value;
}

// The canonical NaNs of PTX.
inline constexpr uint32_t kNanF32 = 0x7fffffff;
inline constexpr uint16_t kNanHalf = 0x7fff;
inline constexpr uint64_t kNanF64 = 0x7ff8000000000000ull;

}  // namespace outboard::ptx
