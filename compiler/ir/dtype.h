// Element types: their widths, their limits, and loading and storing one element. The numeric value
// of a DType is its code on the wire and never changes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>

namespace outboard {

enum class DType : uint8_t {
  kVoid = 0,  // nodes without a value: SINK, STORE, FUNCTION, TUPLE ...
  kBool = 1,
  kI8 = 2,
  kU8 = 3,
  kI16 = 4,
  kU16 = 5,
  kI32 = 6,
  kU32 = 7,
  kI64 = 8,
  kU64 = 9,
  kF8E4M3 = 10,  // OCP 8-bit float: no infinity, one NaN per sign
  kF8E5M2 = 11,  // OCP 8-bit float: IEEE-like, with infinities
  kF16 = 12,
  kBF16 = 13,
  kF32 = 14,
  kF64 = 15,
};
inline constexpr int kDTypeCount = 16;

// Bytes of one stored element; kVoid has 0, kBool 1.
inline constexpr int ByteWidth(DType dtype) {
  constexpr std::array<int8_t, kDTypeCount> kBytes = {0, 1, 1, 1, 2, 2, 4, 4,
                                                      8, 8, 1, 1, 2, 2, 4, 8};
  return kBytes[static_cast<size_t>(dtype)];
}
// "f32", "bool", "bf16" ...; "void" for kVoid.
std::string_view Name(DType dtype);
std::optional<DType> DTypeFromName(std::string_view name);

// These rely on the order of the codes: signed and unsigned integers alternate, then come floats.
inline constexpr bool IsFloat(DType dtype) { return dtype >= DType::kF8E4M3; }
// Of 16 bits.
inline constexpr bool IsFloatOf16(DType dtype) {
  return dtype == DType::kF16 || dtype == DType::kBF16;
}
// Of 8 bits.
inline constexpr bool IsFloatOf8(DType dtype) {
  return dtype == DType::kF8E4M3 || dtype == DType::kF8E5M2;
}
inline constexpr bool IsBool(DType dtype) { return dtype == DType::kBool; }
inline constexpr bool IsInt(DType dtype) { return dtype >= DType::kI8 && dtype <= DType::kU64; }
inline constexpr bool IsSigned(DType dtype) {
  return IsInt(dtype) && static_cast<int>(dtype) % 2 == 0;
}
inline constexpr bool IsUnsigned(DType dtype) { return IsInt(dtype) && !IsSigned(dtype); }

// Smallest and largest value of an integer type or bool; kU64's largest is reported as INT64_MAX.
inline constexpr int64_t IntMin(DType dtype) {
  return IsSigned(dtype) ? std::numeric_limits<int64_t>::min() >> (64 - 8 * ByteWidth(dtype)) : 0;
}
inline constexpr int64_t IntMax(DType dtype) {
  if (IsBool(dtype)) return 1;
  if (IsSigned(dtype)) return ~IntMin(dtype);
  return ByteWidth(dtype) == 8 ? std::numeric_limits<int64_t>::max()
                               : (int64_t{1} << (8 * ByteWidth(dtype))) - 1;
}

// The value of `dtype` nearest to `value` (ties to even), as a double; every NaN becomes the quiet
// one. Out of range: infinity, or the largest finite value for kF8E4M3, which has no infinity.
double RoundTo(DType dtype, double value);
// The low bits of `value` read as `dtype`: integers wrap, bool is value != 0. For integer types and
// bool.
inline constexpr int64_t WrapTo(DType dtype, int64_t value) {
  if (IsBool(dtype)) return value != 0;
  const int unused = 64 - 8 * ByteWidth(dtype);
  const uint64_t shifted = static_cast<uint64_t>(value) << unused;
  return IsSigned(dtype) ? static_cast<int64_t>(shifted) >> unused
                         : static_cast<int64_t>(shifted >> unused);
}

// One element at `bytes`, to and from a double (floats) or an int64_t (ints, bool; kU64 keeps its
// bits).
double LoadFloat(DType dtype, const void* bytes);
void StoreFloat(DType dtype, double value, void* bytes);
int64_t LoadInt(DType dtype, const void* bytes);
void StoreInt(DType dtype, int64_t value, void* bytes);

}  // namespace outboard
