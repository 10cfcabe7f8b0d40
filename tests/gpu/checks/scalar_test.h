// One instruction for many inputs, against a reference.
#pragma once
#include <algorithm>
#include <cfenv>
#include <cmath>
#include <functional>
#include <limits>
#include <type_traits>

#include "tests/gpu/checks/bench.h"

namespace outboard::ptx {
namespace {

struct Bits16 {
  uint16_t bits = 0;
};

// ---- a search among all values of a 16-bit format

double ValueOf(uint16_t bits, int mantissa) {
  const int exponent_bits = 15 - mantissa;
  const int exponent = bits >> mantissa & ((1 << exponent_bits) - 1),
            bias = (1 << (exponent_bits - 1)) - 1;
  const double fraction = bits & ((1 << mantissa) - 1);
  const double sign = bits & 0x8000 ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1) return fraction != 0 ? NAN : sign * INFINITY;
  if (exponent == 0) return sign * fraction * std::pow(2.0, 1 - bias - mantissa);
  return sign * (1 + fraction / (1 << mantissa)) * std::pow(2.0, exponent - bias);
}
// The nearest, ties to even; what is beyond the largest by half a step or more is infinite.
uint16_t Nearest(long double value, int mantissa) {
  if (std::isnan(value)) return 0x7fff;
  const uint16_t infinity = static_cast<uint16_t>(((1 << (15 - mantissa)) - 1) << mantissa);
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const long double magnitude = std::fabs(value);
  uint16_t low = 0, high = infinity;
  while (high - low > 1) {
    const uint16_t middle = static_cast<uint16_t>((low + high) / 2);
    (static_cast<long double>(ValueOf(middle, mantissa)) <= magnitude ? low : high) = middle;
  }
  const long double below = ValueOf(low, mantissa);
  const long double step =
      high == infinity
          ? below - static_cast<long double>(ValueOf(static_cast<uint16_t>(low - 1), mantissa))
          : static_cast<long double>(ValueOf(high, mantissa)) - below;
  const long double rest = magnitude - below;
  const bool up = rest > step / 2 || (rest == step / 2 && low % 2 == 1);
  return sign | (up ? high : low);
}
constexpr int kHalfBits = 10, kBfloatBits = 7;

// ---- one instruction for many inputs

constexpr int kInputs = 512;

template <class T>
const char* RegisterOf() {
  if (std::is_same_v<T, float>) return "%f";
  if (std::is_same_v<T, double>) return "%g";
  return sizeof(T) <= 2 ? "%h" : sizeof(T) == 4 ? "%r" : "%d";
}
template <class T>
std::string LoadType() {
  if (std::is_same_v<T, float>) return "f32";
  if (std::is_same_v<T, double>) return "f64";
  return absl::StrCat(std::is_signed_v<T> ? "s" : "u", 8 * sizeof(T));
}

uint64_t NextRandom(uint64_t* state) {
  *state ^= *state << 13;
  *state ^= *state >> 7;
  *state ^= *state << 17;
  return *state;
}
// Ordinary, small and extreme values.
template <class T>
T RandomValue(uint64_t* state, int i) {
  const uint64_t bits = NextRandom(state);
  if constexpr (std::is_floating_point_v<T>) {
    const T kSpecial[] = {0,
                          -T{0},
                          1,
                          -1,
                          T(INFINITY),
                          -T(INFINITY),
                          std::numeric_limits<T>::max(),
                          std::numeric_limits<T>::min(),
                          std::numeric_limits<T>::denorm_min(),
                          T(NAN),
                          T(0.5),
                          T(2.5),
                          T(-2.5),
                          T(1e9),
                          T(3.4e10),
                          T(-129)};
    if (i % 3 == 0) return kSpecial[bits % std::size(kSpecial)];
    if (i % 3 == 1)
      return static_cast<T>(static_cast<double>(static_cast<int64_t>(bits) >> 40) / 65536);
    T value;
    std::memcpy(&value, &bits, sizeof(T));
    return value;
  } else if constexpr (std::is_same_v<T, Bits16>) {
    return {static_cast<uint16_t>(bits)};
  } else {
    const T kSpecial[] = {
        0,  1,  T(-1), std::numeric_limits<T>::max(), std::numeric_limits<T>::min(), 2, 31,
        32, 33, 7};
    if (i % 3 == 0) return kSpecial[bits % std::size(kSpecial)];
    if (i % 3 == 1) return static_cast<T>(bits % 64);
    return static_cast<T>(bits);
  }
}

template <class D>
bool SameResult(const D& x, const D& y) {
  if constexpr (std::is_floating_point_v<D>)
    return (std::isnan(x) && std::isnan(y)) || std::memcmp(&x, &y, sizeof(D)) == 0;
  else if constexpr (std::is_same_v<D, Bits16>)
    return x.bits == y.bits;
  else
    return x == y;
}
template <class T>
std::string Shown(const T& value) {
  if constexpr (std::is_same_v<T, Bits16>)
    return absl::StrCat(value.bits);
  else
    return absl::StrCat(value);
}

// Runs `instruction` (with $d, $a, $b, $c for its registers) and compares with `expected`.
template <class D, class A, class B, class C>
void Check(const std::string& instruction, const std::function<D(A, B, C)>& expected) {
  std::vector<A> a(kInputs);
  std::vector<B> b(kInputs);
  std::vector<C> c(kInputs);
  uint64_t state = 88172645463325252ull;
  for (int i = 0; i < kInputs; ++i) {
    a[i] = RandomValue<A>(&state, i);
    b[i] = RandomValue<B>(&state, i / 3);
    c[i] = RandomValue<C>(&state, i / 9);
  }
  const auto load = [](const char* reg, const std::string& type, size_t bytes, int parameter) {
    return absl::StrCat(
        "ld.param.u64 %d9", parameter, ", [p", parameter, "];\nmul.wide.u32 %d95, %r90, ", bytes,
        ";\nadd.s64 %d9", parameter, ", %d9", parameter, ", %d95;\n",
        parameter == 0
            ? ""
            : absl::StrCat("ld.global.", type, " ", reg, parameter, ", [%d9", parameter, "];\n"));
  };
  std::string body =
      "mov.u32 %r91, %ctaid.x;\nmov.u32 %r92, %tid.x;\nmad.lo.s32 %r90, %r91, 64, %r92;\n";
  body += load(RegisterOf<A>(), LoadType<A>(), sizeof(A), 1) +
          load(RegisterOf<B>(), LoadType<B>(), sizeof(B), 2) +
          load(RegisterOf<C>(), LoadType<C>(), sizeof(C), 3) +
          load(RegisterOf<D>(), "", sizeof(D), 0);
  body += absl::StrReplaceAll(instruction, {{"$d", absl::StrCat(RegisterOf<D>(), 10)},
                                            {"$a", absl::StrCat(RegisterOf<A>(), 1)},
                                            {"$b", absl::StrCat(RegisterOf<B>(), 2)},
                                            {"$c", absl::StrCat(RegisterOf<C>(), 3)}});
  body +=
      absl::StrCat("\nst.global.",
                   std::is_floating_point_v<D> ? LoadType<D>() : absl::StrCat("b", 8 * sizeof(D)),
                   " [%d90], ", RegisterOf<D>(), "10;\n");
  Bench bench(KernelText({".u64", ".u64", ".u64", ".u64"}, body));
  if (bench.module == nullptr) return;
  const uint64_t out = bench.memory.Allocate(kInputs * sizeof(D));
  bench.Argument(out);
  bench.Argument(bench.Put(a));
  bench.Argument(bench.Put(b));
  bench.Argument(bench.Put(c));
  const absl::Status status = bench.Launch(kInputs / 64, 64);
  ASSERT_TRUE(status.ok()) << instruction << status;
  const std::vector<D> results = bench.Take<D>(out, kInputs);
  int wrong = 0;
  for (int i = 0; i < kInputs && wrong < 3; ++i) {
    const D want = expected(a[i], b[i], c[i]);
    if (SameResult(results[i], want)) continue;
    ++wrong;
    ADD_FAILURE() << instruction << " of " << Shown(a[i]) << ", " << Shown(b[i]) << ", "
                  << Shown(c[i]) << " is " << Shown(results[i]) << ", expected " << Shown(want);
  }
}
template <class T, class F>
void Check2(const std::string& mnemonic, F f) {
  Check<T, T, T, T>(mnemonic + " $d, $a, $b;",
                    [f](T a, T b, T) { return static_cast<T>(f(a, b)); });
}
template <class T, class F>
void Check3(const std::string& mnemonic, F f) {
  Check<T, T, T, T>(mnemonic + " $d, $a, $b, $c;",
                    [f](T a, T b, T c) { return static_cast<T>(f(a, b, c)); });
}
template <class T, class F>
void Check1(const std::string& mnemonic, F f) {
  Check<T, T, T, T>(mnemonic + " $d, $a;", [f](T a, T, T) { return static_cast<T>(f(a)); });
}

using I32 = int32_t;
using U32 = uint32_t;
using I64 = int64_t;
using U64 = uint64_t;
using I128 = __int128;
using U128 = unsigned __int128;

template <class T, class F>
T InMode(int mode, F f) {
  std::fesetround(mode);
  volatile T result = f();
  std::fesetround(FE_TONEAREST);
  return result;
}

}  // namespace

}  // namespace outboard::ptx
