// cvt: between integers, floats and the small formats; with saturation and every rounding mode.
#include <cfenv>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "tests/gpu/ptx/execution.h"

namespace outboard::ptx {
namespace {

// The integer of `type` in a register, sign-extended for signed types.
int64_t IntegerOf(Type type, uint64_t bits) {
  switch (type) {
    case Type::kU8:
    case Type::kB8: return static_cast<uint8_t>(bits);
    case Type::kS8: return static_cast<int8_t>(bits);
    case Type::kU16:
    case Type::kB16: return static_cast<uint16_t>(bits);
    case Type::kS16: return static_cast<int16_t>(bits);
    case Type::kU32:
    case Type::kB32: return static_cast<uint32_t>(bits);
    case Type::kS32: return static_cast<int32_t>(bits);
    default: return static_cast<int64_t>(bits);
  }
}
int BitsOf(Type type) { return 8 * BytesOf(type); }
uint64_t MaskOf(int bits) { return bits == 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1; }

double RoundedToInteger(double value, Rounding rounding) {
  switch (rounding) {
    case Rounding::kZero: return std::trunc(value);
    case Rounding::kDown: return std::floor(value);
    case Rounding::kUp: return std::ceil(value);
    case Rounding::kAway: return std::round(value);
    case Rounding::kNearest: return std::nearbyint(value);
  }
  return value;
}

FloatFormat FormatOf(Type type) {
  switch (type) {
    case Type::kF16:
    case Type::kF16x2: return kHalfFormat;
    case Type::kBf16:
    case Type::kBf16x2: return kBfloatFormat;
    case Type::kE4m3:
    case Type::kE4m3x2: return kE4m3Format;
    case Type::kE5m2:
    case Type::kE5m2x2: return kE5m2Format;
    default: return kTf32Format;
  }
}

// Float to integer saturates always, and NaN becomes 0 (PTX ISA, cvt).
uint64_t ToInteger(double value, Rounding rounding, Type to) {
  if (std::isnan(value)) return 0;
  const double whole = RoundedToInteger(value, rounding);
  const int bits = BitsOf(to);
  if (IsSigned(to)) {
    const double top = std::ldexp(1.0, bits - 1);
    if (whole >= top) return MaskOf(bits - 1);
    if (whole < -top) return uint64_t{1} << (bits - 1);
    return static_cast<uint64_t>(static_cast<int64_t>(whole)) & MaskOf(bits);
  }
  if (whole <= 0) return 0;
  if (whole >= std::ldexp(1.0, bits)) return MaskOf(bits);
  return static_cast<uint64_t>(whole);
}

int HostMode(Rounding rounding) {
  switch (rounding) {
    case Rounding::kZero: return FE_TOWARDZERO;
    case Rounding::kDown: return FE_DOWNWARD;
    case Rounding::kUp: return FE_UPWARD;
    default: return FE_TONEAREST;
  }
}
float ToFloat(double value, Rounding rounding) {
  if (rounding == Rounding::kNearest) return static_cast<float>(value);
  std::fesetround(HostMode(rounding));
  volatile double held = value;
  volatile float result = static_cast<float>(held);
  std::fesetround(FE_TONEAREST);
  return result;
}
template <class T>
T FromInteger(int64_t value, bool is_signed, Rounding rounding) {
  std::fesetround(HostMode(rounding));
  volatile int64_t held = value;
  volatile T result = is_signed ? static_cast<T>(static_cast<int64_t>(held))
                                : static_cast<T>(static_cast<uint64_t>(held));
  std::fesetround(FE_TONEAREST);
  return result;
}

// A 64-bit integer as a double that is rounded to odd: good for every narrower format.
double OddFromInteger(int64_t value, bool is_signed) {
  const bool negative = is_signed && value < 0;
  uint64_t magnitude =
      negative ? uint64_t{0} - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  int shift = 0;
  bool sticky = false;
  while (magnitude >> 53 != 0) {
    sticky |= magnitude & 1;
    magnitude >>= 1;
    ++shift;
  }
  if (sticky) magnitude |= 1;
  const double result = std::ldexp(static_cast<double>(magnitude), shift);
  return negative ? -result : result;
}

double FloatOf(Type type, uint64_t bits) {
  if (type == Type::kF64) return std::bit_cast<double>(bits);
  if (type == Type::kF32 || type == Type::kTf32)
    return std::bit_cast<float>(static_cast<uint32_t>(bits));
  return Decode(static_cast<uint32_t>(bits), FormatOf(type));
}

uint64_t ConvertOne(const Instruction& in, uint64_t bits) {
  const Type to = in.type, from = in.from;
  if (!IsFloat(from)) {
    const int64_t value = IntegerOf(from, bits);
    if (!IsFloat(to)) {
      const int width = BitsOf(to);
      if (!in.sat) return static_cast<uint64_t>(value) & MaskOf(width);
      const bool huge = from == Type::kU64 && value < 0;  // above the largest int64
      if (IsSigned(to)) {
        const int64_t top = static_cast<int64_t>(MaskOf(width - 1));
        if (huge || value > top) return static_cast<uint64_t>(top);
        if (value < -top - 1) return static_cast<uint64_t>(-top - 1) & MaskOf(width);
        return static_cast<uint64_t>(value) & MaskOf(width);
      }
      if (!huge && value < 0) return 0;
      if (static_cast<uint64_t>(value) > MaskOf(width)) return MaskOf(width);
      return static_cast<uint64_t>(value);
    }
    if (to == Type::kF32)
      return std::bit_cast<uint32_t>(FromInteger<float>(value, IsSigned(from), in.rounding));
    if (to == Type::kF64)
      return std::bit_cast<uint64_t>(FromInteger<double>(value, IsSigned(from), in.rounding));
    return Encode(OddFromInteger(value, IsSigned(from)), FormatOf(to), in.rounding);
  }
  double value = FloatOf(from, bits);
  if (in.ftz && from == Type::kF32) value = FlushDenormal(static_cast<float>(value));
  if (!IsFloat(to)) return ToInteger(value, in.rounding, to);
  if (in.integer_rounding) value = RoundedToInteger(value, in.rounding);
  if (in.relu && value < 0) value = 0;
  if (in.sat && to != Type::kE4m3 && to != Type::kE5m2)
    value = value > 0 ? std::min(value, 1.0) : 0;
  if (to == Type::kF64) return std::isnan(value) ? kNanF64 : std::bit_cast<uint64_t>(value);
  if (to == Type::kF32) {
    float result = ToFloat(value, in.integer_rounding ? Rounding::kNearest : in.rounding);
    if (in.ftz) result = FlushDenormal(result);
    return std::isnan(result) ? kNanF32 : std::bit_cast<uint32_t>(result);
  }
  if (to == Type::kTf32) return uint64_t{Encode(value, kTf32Format, in.rounding)} << 13;
  return Encode(value, FormatOf(to), in.integer_rounding ? Rounding::kNearest : in.rounding);
}

}  // namespace

void Execution::Convert(Warp* warp, const Instruction& in, uint32_t mask) {
  const uint64_t* a = warp->row(in.a);
  uint64_t* d = warp->row(in.d);
  for (; mask != 0; mask &= mask - 1) {
    const int lane = std::countr_zero(mask);
    const uint64_t bits = a[lane];
    if (in.type == Type::kBf16 && in.from == Type::kF32 && in.rounding == Rounding::kNearest &&
        !in.relu && !in.sat)
      d[lane] = FloatToBfloat(std::bit_cast<float>(static_cast<uint32_t>(bits)));
    else if (in.type == Type::kF32 && in.from == Type::kF16 && !in.sat && !in.ftz &&
             (bits & 0x7c00) != 0x7c00)
      d[lane] = std::bit_cast<uint32_t>(HalfToFloat(static_cast<uint16_t>(bits)));
    else
      d[lane] = ConvertOne(in, bits);
    // A signed byte fills its register, which has 16 bits at least (PTX ISA, "Operand Size
    // Exceeding Instruction-Type Size").
    if (in.type == Type::kS8)
      d[lane] = static_cast<uint16_t>(static_cast<int16_t>(static_cast<int8_t>(d[lane])));
  }
}

// Two values in one register; the first operand is the upper half.
void Execution::ConvertPair(Warp* warp, const Instruction& in, uint32_t mask) {
  const uint64_t* a = warp->row(in.a);
  const uint64_t* b = in.b >= 0 ? warp->row(in.b) : nullptr;
  uint64_t* d = warp->row(in.d);
  const FloatFormat to = FormatOf(in.type);
  const int width = 8 * BytesOf(in.type) / 2;
  for (; mask != 0; mask &= mask - 1) {
    const int lane = std::countr_zero(mask);
    double high = 0, low = 0;
    if (b != nullptr) {
      high = FloatOf(in.from, a[lane]);
      low = FloatOf(in.from, b[lane]);
    } else {
      const int half = 8 * BytesOf(in.from) / 2;
      high = Decode(static_cast<uint32_t>(a[lane] >> half & MaskOf(half)), FormatOf(in.from));
      low = Decode(static_cast<uint32_t>(a[lane] & MaskOf(half)), FormatOf(in.from));
    }
    const auto one = [&](double value) -> uint64_t {
      if (in.relu && value < 0) value = 0;
      return Encode(value, to, in.rounding, in.sat);
    };
    d[lane] = one(high) << width | one(low);
  }
}

}  // namespace outboard::ptx
