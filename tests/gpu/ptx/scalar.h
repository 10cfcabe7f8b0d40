// What instructions of one lane share: registers as values, and loops over lanes.
#pragma once

#include <algorithm>
#include <bit>
#include <cfenv>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "tests/gpu/ptx/execution.h"

namespace outboard::ptx {

struct F16 {
  uint16_t bits;
};
struct Bf16 {
  uint16_t bits;
};

template <class T>
inline T Get(uint64_t bits) {
  if constexpr (std::is_same_v<T, float>)
    return std::bit_cast<float>(static_cast<uint32_t>(bits));
  else if constexpr (std::is_same_v<T, double>)
    return std::bit_cast<double>(bits);
  else if constexpr (std::is_same_v<T, F16> || std::is_same_v<T, Bf16>)
    return {static_cast<uint16_t>(bits)};
  else
    return static_cast<T>(bits);
}
template <class T>
inline uint64_t Put(T value) {
  if constexpr (std::is_same_v<T, float>)
    return std::bit_cast<uint32_t>(value);
  else if constexpr (std::is_same_v<T, double>)
    return std::bit_cast<uint64_t>(value);
  else if constexpr (std::is_same_v<T, F16> || std::is_same_v<T, Bf16>)
    return value.bits;
  else if constexpr (std::is_same_v<T, bool>)
    return value;
  else
    return static_cast<std::make_unsigned_t<T>>(value);
}

// Calls f(lane) for the lanes of `mask`. All 32 is the common case, and the one that compilers
// vectorise.
template <class F>
inline void ForLanes(uint32_t mask, F f) {
  if (mask == ~0u) {
    for (int lane = 0; lane < 32; ++lane) f(lane);
  } else {
    for (; mask != 0; mask &= mask - 1) f(std::countr_zero(mask));
  }
}

template <class T, class F>
inline void Map1(Warp* w, const Instruction& in, uint32_t mask, F f) {
  const uint64_t* a = w->row(in.a);
  uint64_t* d = w->row(in.d);
  ForLanes(mask, [&](int i) { d[i] = Put(f(Get<T>(a[i]))); });
}
template <class T, class F>
inline void Map2(Warp* w, const Instruction& in, uint32_t mask, F f) {
  const uint64_t* a = w->row(in.a);
  const uint64_t* b = w->row(in.b);
  uint64_t* d = w->row(in.d);
  ForLanes(mask, [&](int i) { d[i] = Put(f(Get<T>(a[i]), Get<T>(b[i]))); });
}
template <class T, class F>
inline void Map3(Warp* w, const Instruction& in, uint32_t mask, F f) {
  const uint64_t* a = w->row(in.a);
  const uint64_t* b = w->row(in.b);
  const uint64_t* c = w->row(in.c);
  uint64_t* d = w->row(in.d);
  ForLanes(mask, [&](int i) { d[i] = Put(f(Get<T>(a[i]), Get<T>(b[i]), Get<T>(c[i]))); });
}

// Calls f with a value of the C++ type of an integer type.
template <class F>
inline bool WithInteger(Type type, F f) {
  switch (type) {
    case Type::kU8:
    case Type::kB8: f(uint8_t{}); return true;
    case Type::kS8: f(int8_t{}); return true;
    case Type::kU16:
    case Type::kB16: f(uint16_t{}); return true;
    case Type::kS16: f(int16_t{}); return true;
    case Type::kU32:
    case Type::kB32: f(uint32_t{}); return true;
    case Type::kS32: f(int32_t{}); return true;
    case Type::kU64:
    case Type::kB64: f(uint64_t{}); return true;
    case Type::kS64: f(int64_t{}); return true;
    default: return false;
  }
}

template <class T>
using Wider =
    std::conditional_t<sizeof(T) == 8,
                       std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>,
                       std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>>;

template <class T>
T Wrap(Wider<T> value) {
  return static_cast<T>(static_cast<std::make_unsigned_t<T>>(value));
}
template <class T>
T Saturate(Wider<T> value) {
  if (value > std::numeric_limits<T>::max()) return std::numeric_limits<T>::max();
  if (value < std::numeric_limits<T>::min()) return std::numeric_limits<T>::min();
  return static_cast<T>(value);
}

// Instructions of one type family; `in.type` says which type.
void IntegerInstruction(Warp* warp, const Instruction& in, uint32_t mask);
void FloatInstruction(Warp* warp, const Instruction& in, uint32_t mask);

}  // namespace outboard::ptx
