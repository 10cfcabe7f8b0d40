#include "compiler/ir/dtype.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/check.h"

namespace outboard {
namespace {

constexpr std::array<std::string_view, kDTypeCount> kNames = {
    "void", "bool", "i8",     "u8",     "i16", "u16",  "i32", "u32",
    "i64",  "u64",  "f8e4m3", "f8e5m2", "f16", "bf16", "f32", "f64"};

// 2^exponent, for normal doubles, and of a normal double its exponent: less, for a subnormal, than
// any small float has. These functions are called for each element that a test's machines touch,
// where ldexp and ilogb took a quarter of the time.
double PowerOfTwo(int exponent) {
  return std::bit_cast<double>(static_cast<uint64_t>(exponent + 1023) << 52);
}
int ExponentOf(double value) {
  return static_cast<int>(std::bit_cast<uint64_t>(value) >> 52 & 0x7ff) - 1023;
}

// A binary float format of at most 16 bits. Its values are all doubles, so rounding is to a grid of
// doubles.
struct SmallFloat {
  int exponent_bits;
  int mantissa_bits;
  bool has_infinity;
  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  double largest() const {
    // e4m3 uses its top exponent for numbers and gives up only the all-ones mantissa, which is NaN.
    const int top = has_infinity ? bias() : bias() + 1;
    const double mantissa = 2.0 - PowerOfTwo((has_infinity ? 0 : 1) - mantissa_bits);
    return mantissa * PowerOfTwo(top);
  }
};

constexpr SmallFloat FormatOf(DType dtype) {
  switch (dtype) {
    case DType::kF8E4M3: return {4, 3, false};
    case DType::kF8E5M2: return {5, 2, true};
    case DType::kF16: return {5, 10, true};
    case DType::kBF16: return {8, 7, true};
    default: OB_CHECK(false && "not a small float");
  }
  return {};
}

double RoundSmall(const SmallFloat& format, double value) {
  if (std::isnan(value) || value == 0) return value;
  if (std::isinf(value))
    return format.has_infinity ? value : std::copysign(format.largest(), value);
  int exponent = ExponentOf(value);
  if (exponent < 1 - format.bias())
    exponent = 1 - format.bias();  // subnormals share the smallest exponent
  const int step = exponent - format.mantissa_bits;
  // As nearbyint, which is a call here: beside 2^52 a double has no digits behind the point.
  constexpr double kNoFraction = 0x1.8p52;
  const double whole = value * PowerOfTwo(-step) + kNoFraction - kNoFraction;
  const double rounded = std::copysign(whole, value) * PowerOfTwo(step);
  if (std::abs(rounded) > format.largest())
    return format.has_infinity ? std::copysign(std::numeric_limits<double>::infinity(), value)
                               : std::copysign(format.largest(), value);
  return rounded;
}

uint32_t PackSmall(const SmallFloat& format, double value) {
  const uint32_t sign =
      std::signbit(value) ? 1u << (format.exponent_bits + format.mantissa_bits) : 0;
  const uint32_t exponent_ones = ((1u << format.exponent_bits) - 1) << format.mantissa_bits;
  const uint32_t mantissa_ones = (1u << format.mantissa_bits) - 1;
  if (std::isnan(value))
    return exponent_ones | (format.has_infinity ? 1u << (format.mantissa_bits - 1) : mantissa_ones);
  value = RoundSmall(format, value);
  if (std::isinf(value)) return sign | exponent_ones;
  if (value == 0) return sign;
  const double magnitude = std::abs(value);
  const int exponent = ExponentOf(magnitude);
  if (exponent < 1 - format.bias())
    return sign |
           static_cast<uint32_t>(magnitude * PowerOfTwo(format.bias() - 1 + format.mantissa_bits));
  const auto mantissa =
      static_cast<uint32_t>(magnitude * PowerOfTwo(format.mantissa_bits - exponent)) &
      mantissa_ones;
  return sign | static_cast<uint32_t>(exponent + format.bias()) << format.mantissa_bits | mantissa;
}

// Inlined for each format, whose numbers it then knows: tests' machines load little else.
[[gnu::always_inline]] inline double UnpackSmall(const SmallFloat& format, uint32_t bits) {
  const uint32_t mantissa = bits & ((1u << format.mantissa_bits) - 1);
  const uint32_t exponent = bits >> format.mantissa_bits & ((1u << format.exponent_bits) - 1);
  const bool negative = bits >> (format.exponent_bits + format.mantissa_bits) & 1;
  const uint32_t exponent_ones = (1u << format.exponent_bits) - 1;
  double value;
  if (exponent == exponent_ones && format.has_infinity)
    value = mantissa ? std::numeric_limits<double>::quiet_NaN()
                     : std::numeric_limits<double>::infinity();
  else if (exponent == exponent_ones && mantissa == (1u << format.mantissa_bits) - 1)
    value = std::numeric_limits<double>::quiet_NaN();
  else if (exponent == 0)
    value = mantissa * PowerOfTwo(1 - format.bias() - format.mantissa_bits);
  else
    value = (mantissa + (1u << format.mantissa_bits)) *
            PowerOfTwo(static_cast<int>(exponent) - format.bias() - format.mantissa_bits);
  return negative ? -value : value;
}

template <DType kDType>
double LoadSmall(const void* bytes) {
  constexpr SmallFloat kFormat = FormatOf(kDType);
  uint32_t bits = 0;
  std::memcpy(&bits, bytes, ByteWidth(kDType));  // little-endian, as every target here is
  // A bf16 is the upper half of an f32.
  if (kDType == DType::kBF16 && (bits & 0x7f80) != 0x7f80) return std::bit_cast<float>(bits << 16);
  return UnpackSmall(kFormat, bits);
}

}  // namespace

std::string_view Name(DType dtype) { return kNames[static_cast<size_t>(dtype)]; }

std::optional<DType> DTypeFromName(std::string_view name) {
  for (int i = 0; i < kDTypeCount; ++i)
    if (kNames[i] == name) return static_cast<DType>(i);
  return std::nullopt;
}

double RoundTo(DType dtype, double value) {
  if (std::isnan(value)) return std::numeric_limits<double>::quiet_NaN();
  if (dtype == DType::kF64) return value;
  if (dtype == DType::kF32) return static_cast<float>(value);
  return RoundSmall(FormatOf(dtype), value);
}

double LoadFloat(DType dtype, const void* bytes) {
  if (dtype == DType::kF64) {
    double value;
    std::memcpy(&value, bytes, 8);
    return value;
  }
  if (dtype == DType::kF32) {
    float value;
    std::memcpy(&value, bytes, 4);
    return value;
  }
  switch (dtype) {
    case DType::kF8E4M3: return LoadSmall<DType::kF8E4M3>(bytes);
    case DType::kF8E5M2: return LoadSmall<DType::kF8E5M2>(bytes);
    case DType::kF16: return LoadSmall<DType::kF16>(bytes);
    case DType::kBF16: return LoadSmall<DType::kBF16>(bytes);
    default: OB_CHECK(false && "not a float");
  }
  return 0;
}

void StoreFloat(DType dtype, double value, void* bytes) {
  if (dtype == DType::kF64) {
    std::memcpy(bytes, &value, 8);
  } else if (dtype == DType::kF32) {
    const float narrow = static_cast<float>(value);
    std::memcpy(bytes, &narrow, 4);
  } else {
    const uint32_t bits = PackSmall(FormatOf(dtype), value);
    std::memcpy(bytes, &bits, ByteWidth(dtype));
  }
}

int64_t LoadInt(DType dtype, const void* bytes) {
  int64_t value = 0;
  std::memcpy(&value, bytes, ByteWidth(dtype));
  return WrapTo(dtype, value);
}

void StoreInt(DType dtype, int64_t value, void* bytes) {
  value = WrapTo(dtype, value);
  std::memcpy(bytes, &value, ByteWidth(dtype));
}

}  // namespace outboard
