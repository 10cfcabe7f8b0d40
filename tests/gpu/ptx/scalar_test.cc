// Instructions of one lane against arithmetic that shares no code with the machine: C++'s integers and floats,
// __int128, and for small formats a search among all values of the format.
#include <algorithm>
#include <cfenv>
#include <cmath>
#include <functional>
#include <limits>
#include <type_traits>

#include "tests/gpu/ptx/bench.h"

namespace outboard::ptx {
namespace {

struct Bits16 {
  uint16_t bits = 0;
};

// ---- a search among all values of a 16-bit format

double ValueOf(uint16_t bits, int mantissa) {
  const int exponent_bits = 15 - mantissa;
  const int exponent = bits >> mantissa & ((1 << exponent_bits) - 1), bias = (1 << (exponent_bits - 1)) - 1;
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
  const long double step = high == infinity ? below - static_cast<long double>(ValueOf(static_cast<uint16_t>(low - 1), mantissa))
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
    const T kSpecial[] = {0, -T{0}, 1, -1, T(INFINITY), -T(INFINITY), std::numeric_limits<T>::max(), std::numeric_limits<T>::min(),
                          std::numeric_limits<T>::denorm_min(), T(NAN), T(0.5), T(2.5), T(-2.5), T(1e9), T(3.4e10), T(-129)};
    if (i % 3 == 0) return kSpecial[bits % std::size(kSpecial)];
    if (i % 3 == 1) return static_cast<T>(static_cast<double>(static_cast<int64_t>(bits) >> 40) / 65536);
    T value;
    std::memcpy(&value, &bits, sizeof(T));
    return value;
  } else if constexpr (std::is_same_v<T, Bits16>) {
    return {static_cast<uint16_t>(bits)};
  } else {
    const T kSpecial[] = {0, 1, T(-1), std::numeric_limits<T>::max(), std::numeric_limits<T>::min(), 2, 31, 32, 33, 7};
    if (i % 3 == 0) return kSpecial[bits % std::size(kSpecial)];
    if (i % 3 == 1) return static_cast<T>(bits % 64);
    return static_cast<T>(bits);
  }
}

template <class D>
bool SameResult(const D& x, const D& y) {
  if constexpr (std::is_floating_point_v<D>) return (std::isnan(x) && std::isnan(y)) || std::memcmp(&x, &y, sizeof(D)) == 0;
  else if constexpr (std::is_same_v<D, Bits16>) return x.bits == y.bits;
  else return x == y;
}
template <class T>
std::string Shown(const T& value) {
  if constexpr (std::is_same_v<T, Bits16>) return absl::StrCat(value.bits);
  else return absl::StrCat(value);
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
    return absl::StrCat("ld.param.u64 %d9", parameter, ", [p", parameter, "];\nmul.wide.u32 %d95, %r90, ", bytes, ";\nadd.s64 %d9",
                        parameter, ", %d9", parameter, ", %d95;\n", parameter == 0 ? "" : absl::StrCat("ld.global.", type, " ", reg, parameter, ", [%d9", parameter, "];\n"));
  };
  std::string body = "mov.u32 %r91, %ctaid.x;\nmov.u32 %r92, %tid.x;\nmad.lo.s32 %r90, %r91, 64, %r92;\n";
  body += load(RegisterOf<A>(), LoadType<A>(), sizeof(A), 1) + load(RegisterOf<B>(), LoadType<B>(), sizeof(B), 2) +
          load(RegisterOf<C>(), LoadType<C>(), sizeof(C), 3) + load(RegisterOf<D>(), "", sizeof(D), 0);
  body += absl::StrReplaceAll(instruction, {{"$d", absl::StrCat(RegisterOf<D>(), 10)}, {"$a", absl::StrCat(RegisterOf<A>(), 1)},
                                            {"$b", absl::StrCat(RegisterOf<B>(), 2)}, {"$c", absl::StrCat(RegisterOf<C>(), 3)}});
  body += absl::StrCat("\nst.global.", std::is_floating_point_v<D> ? LoadType<D>() : absl::StrCat("b", 8 * sizeof(D)), " [%d90], ",
                       RegisterOf<D>(), "10;\n");
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
    ADD_FAILURE() << instruction << " of " << Shown(a[i]) << ", " << Shown(b[i]) << ", " << Shown(c[i]) << " is "
                  << Shown(results[i]) << ", expected " << Shown(want);
  }
}
template <class T, class F>
void Check2(const std::string& mnemonic, F f) {
  Check<T, T, T, T>(mnemonic + " $d, $a, $b;", [f](T a, T b, T) { return static_cast<T>(f(a, b)); });
}
template <class T, class F>
void Check3(const std::string& mnemonic, F f) {
  Check<T, T, T, T>(mnemonic + " $d, $a, $b, $c;", [f](T a, T b, T c) { return static_cast<T>(f(a, b, c)); });
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

TEST(Integers, AddSubMulDiv) {
  Check2<I32>("add.s32", [](I32 a, I32 b) { return U32(a) + U32(b); });
  Check2<I32>("sub.s32", [](I32 a, I32 b) { return U32(a) - U32(b); });
  Check2<I32>("add.sat.s32", [](I32 a, I32 b) { return std::clamp<I64>(I64{a} + b, INT32_MIN, INT32_MAX); });
  Check2<I32>("sub.sat.s32", [](I32 a, I32 b) { return std::clamp<I64>(I64{a} - b, INT32_MIN, INT32_MAX); });
  Check2<uint16_t>("add.u16", [](int a, int b) { return a + b; });
  Check2<U64>("sub.u64", [](U64 a, U64 b) { return a - b; });
  Check2<I32>("mul.lo.s32", [](I32 a, I32 b) { return I64{a} * b; });
  Check2<I32>("mul.hi.s32", [](I32 a, I32 b) { return (I64{a} * b) >> 32; });
  Check2<U32>("mul.hi.u32", [](U32 a, U32 b) { return (U64{a} * b) >> 32; });
  Check2<U64>("mul.hi.u64", [](U64 a, U64 b) { return (U128{a} * b) >> 64; });
  Check2<I64>("mul.hi.s64", [](I64 a, I64 b) { return (I128{a} * b) >> 64; });
  Check2<I64>("mul.lo.s64", [](I64 a, I64 b) { return U64(a) * U64(b); });
  Check<I64, I32, I32, I32>("mul.wide.s32 $d, $a, $b;", [](I32 a, I32 b, I32) { return I64{a} * b; });
  Check<U64, U32, U32, U64>("mad.wide.u32 $d, $a, $b, $c;", [](U32 a, U32 b, U64 c) { return U64{a} * b + c; });
  Check3<I32>("mad.lo.s32", [](I32 a, I32 b, I32 c) { return U32(I64{a} * b) + U32(c); });
  Check3<U32>("mad.hi.u32", [](U32 a, U32 b, U32 c) { return U32((U64{a} * b) >> 32) + c; });
  Check3<U32>("sad.u32", [](U32 a, U32 b, U32 c) { return c + (a > b ? a - b : b - a); });
  const auto quotient = [](auto a, auto b) { return b == 0 ? decltype(a)(-1) : decltype(a)(I128{a} / I128{b}); };
  const auto rest = [](auto a, auto b) { return b == 0 ? a : decltype(a)(I128{a} % I128{b}); };
  Check2<I32>("div.s32", quotient);
  Check2<U32>("div.u32", quotient);
  Check2<I64>("div.s64", quotient);
  Check2<I32>("rem.s32", rest);
  Check2<I64>("rem.s64", rest);
  Check2<uint16_t>("rem.u16", rest);
  Check2<I32>("min.s32", [](I32 a, I32 b) { return std::min(a, b); });
  Check2<U64>("max.u64", [](U64 a, U64 b) { return std::max(a, b); });
  Check1<I32>("abs.s32", [](I32 a) { return a < 0 ? -I64{a} : a; });
  Check1<I64>("neg.s64", [](I64 a) { return U64{0} - U64(a); });
}

TEST(Integers, CarriesMake128Bits) {
  Check<U64, U64, U64, U64>("add.cc.u64 %d50, $a, $b;\naddc.u64 $d, $c, 0;",
                            [](U64 a, U64 b, U64 c) { return c + static_cast<U64>((U128{a} + b) >> 64); });
  Check<U32, U32, U32, U32>("sub.cc.u32 %r50, $a, $b;\nsubc.u32 $d, $c, 0;", [](U32 a, U32 b, U32 c) { return c - (a < b); });
}

TEST(Integers, BitsAndShifts) {
  Check2<U32>("and.b32", [](U32 a, U32 b) { return a & b; });
  Check2<U64>("xor.b64", [](U64 a, U64 b) { return a ^ b; });
  Check1<uint16_t>("not.b16", [](int a) { return ~a; });
  Check<U64, U64, U32, U32>("shl.b64 $d, $a, $b;", [](U64 a, U32 b, U32) { return b > 63 ? 0 : a << b; });
  Check<I32, I32, U32, U32>("shr.s32 $d, $a, $b;", [](I32 a, U32 b, U32) { return a >> std::min(b, 31u); });
  Check<U32, U32, U32, U32>("shr.u32 $d, $a, $b;", [](U32 a, U32 b, U32) { return b > 31 ? 0 : a >> b; });
  Check<uint16_t, uint16_t, U32, U32>("shr.u16 $d, $a, $b;", [](uint16_t a, U32 b, U32) { return static_cast<uint16_t>(b > 15 ? 0 : a >> b); });
  Check1<U32>("popc.b32", [](U32 a) { return __builtin_popcount(a); });
  Check<U32, U64, U64, U64>("clz.b64 $d, $a;", [](U64 a, U64, U64) { return a == 0 ? 64 : __builtin_clzll(a); });
  Check<U32, U32, U32, U32>("bfind.u32 $d, $a;", [](U32 a, U32, U32) { return a == 0 ? ~0u : 31 - __builtin_clz(a); });
  Check<U32, I32, U32, U32>("bfind.s32 $d, $a;", [](I32 a, U32, U32) { const U32 x = a < 0 ? ~a : a; return x == 0 ? ~0u : 31 - __builtin_clz(x); });
  Check1<U32>("brev.b32", [](U32 a) { U32 r = 0; for (int i = 0; i < 32; ++i) r |= (a >> i & 1) << (31 - i); return r; });
  Check3<U32>("bfe.u32", [](U32 a, U32 b, U32 c) {
    U32 r = 0;
    for (U32 i = 0; i < std::min(c & 255, 32u); ++i) r |= ((b & 255) + i < 32 ? a >> ((b & 255) + i) & 1 : 0) << i;
    return r;
  });
  Check<I32, I32, U32, U32>("bfe.s32 $d, $a, $b, $c;", [](I32 a, U32 b, U32 c) {
    const U32 pos = b & 255, len = c & 255;
    const U32 sign = len == 0 ? 0 : static_cast<U32>(a) >> std::min(pos + len - 1, 31u) & 1;
    U32 r = 0;
    for (U32 i = 0; i < 32; ++i) r |= (i < len && pos + i < 32 ? static_cast<U32>(a) >> (pos + i) & 1 : sign) << i;
    return static_cast<I32>(r);
  });
  Check<U32, U32, U32, U32>("bfi.b32 $d, $a, $b, $c, 5;", [](U32 a, U32 b, U32 c) {
    U32 r = b;
    for (U32 i = 0; i < 5; ++i)
      if ((c & 255) + i < 32) r = (r & ~(1u << ((c & 255) + i))) | (a >> i & 1) << ((c & 255) + i);
    return r;
  });
  Check3<U32>("shf.l.wrap.b32", [](U32 a, U32 b, U32 c) { return ((U64{b} << 32 | a) << (c & 31)) >> 32; });
  Check3<U32>("shf.r.clamp.b32", [](U32 a, U32 b, U32 c) { return (U64{b} << 32 | a) >> std::min(c, 32u); });
  Check<U32, U32, U32, U32>("lop3.b32 $d, $a, $b, $c, 0xe8;", [](U32 a, U32 b, U32 c) { return (a & b) | (a & c) | (b & c); });
  Check3<U32>("prmt.b32", [](U32 a, U32 b, U32 c) {
    U32 r = 0;
    for (int i = 0; i < 4; ++i) {
      const U32 select = c >> (4 * i) & 15;
      U32 byte = static_cast<U32>((U64{b} << 32 | a) >> (8 * (select & 7))) & 255;
      if (select & 8) byte = byte & 128 ? 255 : 0;
      r |= byte << (8 * i);
    }
    return r;
  });
  Check<I32, U32, U32, I32>("dp4a.s32.s32 $d, $a, $b, $c;", [](U32 a, U32 b, I32 c) {
    U32 r = static_cast<U32>(c);
    for (int i = 0; i < 4; ++i) r += static_cast<U32>(static_cast<int8_t>(a >> (8 * i)) * static_cast<int8_t>(b >> (8 * i)));
    return static_cast<I32>(r);
  });
  Check3<U32>("dp4a.u32.u32", [](U32 a, U32 b, U32 c) {
    for (int i = 0; i < 4; ++i) c += (a >> (8 * i) & 255) * (b >> (8 * i) & 255);
    return c;
  });
  Check<U64, U32, U32, U32>("mov.b64 $d, {$a, $b};", [](U32 a, U32 b, U32) { return U64{b} << 32 | a; });
  Check<U32, U64, U32, U32>("mov.b64 {%r50, $d}, $a;", [](U64 a, U32, U32) { return static_cast<U32>(a >> 32); });
}

TEST(Predicates, CompareAndSelect) {
  const auto compare = [](const std::string& instruction, auto f) {
    using T = decltype(f)::Type;
    Check<U32, T, T, U32>(absl::StrCat("setp.ne.u32 %p2, $c, 0;\n", instruction, "\nselp.u32 $d, 1, 0, %p1;"),
                          [f](T a, T b, U32 c) { return f.Of(a, b, c != 0) ? 1u : 0u; });
  };
#define OUTBOARD_COMPARE(text, type, expression)                  \
  {                                                               \
    struct Reference {                                            \
      using Type = type;                                          \
      static bool Of(type a, type b, bool c) { return expression; } \
    };                                                            \
    compare(text, Reference());                                   \
  }
  OUTBOARD_COMPARE("setp.lt.s32 %p1, $a, $b;", I32, a < b)
  OUTBOARD_COMPARE("setp.hi.u32 %p1, $a, $b;", U32, a > b)
  OUTBOARD_COMPARE("setp.ge.u64 %p1, $a, $b;", U64, a >= b)
  OUTBOARD_COMPARE("setp.le.s16 %p1, $a, $b;", int16_t, a <= b)
  OUTBOARD_COMPARE("setp.eq.f32 %p1, $a, $b;", float, a == b)
  OUTBOARD_COMPARE("setp.ne.f32 %p1, $a, $b;", float, !std::isunordered(a, b) && a != b)
  OUTBOARD_COMPARE("setp.neu.f64 %p1, $a, $b;", double, a != b)
  OUTBOARD_COMPARE("setp.ltu.f32 %p1, $a, $b;", float, std::isunordered(a, b) || a < b)
  OUTBOARD_COMPARE("setp.num.f32 %p1, $a, $b;", float, !std::isunordered(a, b))
  OUTBOARD_COMPARE("setp.nan.f64 %p1, $a, $b;", double, std::isunordered(a, b))
  OUTBOARD_COMPARE("setp.lt.and.s32 %p1, $a, $b, %p2;", I32, a < b && c)
  OUTBOARD_COMPARE("setp.lt.or.s32 %p1, $a, $b, !%p2;", I32, a < b || !c)
  OUTBOARD_COMPARE("setp.lt.s32 %p3|%p1, $a, $b;", I32, !(a < b))
  OUTBOARD_COMPARE("setp.lt.s32 %p3, $a, $b;\nxor.pred %p1, %p3, %p2;", I32, (a < b) != c)
#undef OUTBOARD_COMPARE
  Check<U32, float, float, U32>("set.gt.u32.f32 $d, $a, $b;", [](float a, float b, U32) { return a > b ? ~0u : 0u; });
  Check<U32, U32, U32, I32>("slct.u32.s32 $d, $a, $b, $c;", [](U32 a, U32 b, I32 c) { return c >= 0 ? a : b; });
}

template <class T, class F>
T InMode(int mode, F f) {
  std::fesetround(mode);
  volatile T result = f();
  std::fesetround(FE_TONEAREST);
  return result;
}

TEST(Floats, ArithmeticInEveryRounding) {
  const std::pair<const char*, int> modes[] = {{"rn", FE_TONEAREST}, {"rz", FE_TOWARDZERO}, {"rm", FE_DOWNWARD}, {"rp", FE_UPWARD}};
  for (const auto& [name, mode] : modes) {
    const int m = mode;
    Check2<float>(absl::StrCat("add.", name, ".f32"), [m](float a, float b) { volatile float x = a, y = b; return InMode<float>(m, [&] { return x + y; }); });
    Check2<float>(absl::StrCat("mul.", name, ".f32"), [m](float a, float b) { volatile float x = a, y = b; return InMode<float>(m, [&] { return x * y; }); });
    Check2<float>(absl::StrCat("div.", name, ".f32"), [m](float a, float b) { volatile float x = a, y = b; return InMode<float>(m, [&] { return x / y; }); });
    Check2<double>(absl::StrCat("sub.", name, ".f64"), [m](double a, double b) { volatile double x = a, y = b; return InMode<double>(m, [&] { return x - y; }); });
    Check2<double>(absl::StrCat("div.", name, ".f64"), [m](double a, double b) { volatile double x = a, y = b; return InMode<double>(m, [&] { return x / y; }); });
    // A sum of a product in 80 bits, rounded to odd, is exact enough for float.
    Check3<float>(absl::StrCat("fma.", name, ".f32"), [m](float a, float b, float c) { volatile float x = a, y = b, z = c; return InMode<float>(m, [&] { return std::fma(float{x}, float{y}, float{z}); }); });
    Check1<float>(absl::StrCat("sqrt.", name, ".f32"), [m](float a) { volatile float x = a; return InMode<float>(m, [&] { return std::sqrt(float{x}); }); });
    Check1<float>(absl::StrCat("rcp.", name, ".f32"), [m](float a) { volatile float x = a; return InMode<float>(m, [&] { return 1 / x; }); });
  }
  Check3<double>("fma.rn.f64", [](double a, double b, double c) { return std::fma(a, b, c); });
  Check1<double>("sqrt.rn.f64", [](double a) { return std::sqrt(a); });
}

TEST(Floats, ModifiersOfFloats) {
  const auto flushed = [](float x) { return x != 0 && std::fabs(x) < std::numeric_limits<float>::min() ? std::copysign(0.0f, x) : x; };
  Check2<float>("add.ftz.f32", [&](float a, float b) { return flushed(flushed(a) + flushed(b)); });
  Check2<float>("mul.rn.ftz.f32", [&](float a, float b) { return flushed(flushed(a) * flushed(b)); });
  Check2<float>("add.sat.f32", [](float a, float b) { const float r = a + b; return r > 0 ? std::min(r, 1.0f) : 0; });
  Check1<float>("abs.f32", [](float a) { return std::fabs(a); });
  Check1<float>("neg.f32", [](float a) { return -a; });
  Check2<float>("max.f32", [](float a, float b) { return std::isnan(a) ? b : std::isnan(b) ? a : a == b ? (std::signbit(a) ? b : a) : std::max(a, b); });
  Check2<float>("min.NaN.f32", [](float a, float b) { return std::isunordered(a, b) ? float{NAN} : a == b ? (std::signbit(a) ? a : b) : std::min(a, b); });
  Check2<double>("min.f64", [](double a, double b) { return std::isnan(a) ? b : std::isnan(b) ? a : a == b ? (std::signbit(a) ? a : b) : std::min(a, b); });
  Check2<float>("copysign.f32", [](float a, float b) { return std::copysign(b, a); });
  Check<U32, float, float, float>("testp.subnormal.f32 %p1, $a;\nselp.u32 $d, 1, 0, %p1;", [](float a, float, float) { return U32{std::fpclassify(a) == FP_SUBNORMAL}; });
}

// PTX gives bounds for these; the machine keeps to half a step of float.
TEST(Floats, ApproximateFunctions_AreWithinTheirBounds) {
  const auto near = [](const char* mnemonic, double (*f)(double), double from, double to, double bound) {
    std::vector<float> values;
    for (int i = 0; i < kInputs; ++i) values.push_back(static_cast<float>(from + (to - from) * i / kInputs));
    Bench bench(KernelText({".u64"}, absl::StrCat("ld.param.u64 %d1, [p0];\nmov.u32 %r1, %tid.x;\nmul.wide.u32 %d2, %r1, 4;\nadd.s64 %d3, %d1, %d2;\nld.global.f32 %f1, [%d3];\n", mnemonic, " %f2, %f1;\nst.global.f32 [%d3], %f2;\n")));
    bench.Argument(bench.Put(values));
    ASSERT_TRUE(bench.Launch(1, kInputs).ok());
    const std::vector<float> results = bench.Take<float>(DeviceMemory::kBase, kInputs);
    for (int i = 0; i < kInputs; ++i) {
      const double want = f(values[i]);
      ASSERT_NEAR(results[i], want, bound * std::max(1e-30, std::fabs(want))) << mnemonic << " of " << values[i];
    }
  };
  near("ex2.approx.ftz.f32", [](double x) { return std::exp2(x); }, -20, 20, 1.0 / (1 << 22));
  near("lg2.approx.f32", [](double x) { return std::log2(x); }, 2.5, 1000, 1.0 / (1 << 22));
  near("sin.approx.f32", [](double x) { return std::sin(x); }, 0.1, 3, 1.0 / (1 << 20));
  near("cos.approx.f32", [](double x) { return std::cos(x); }, 0, 1.5, 1.0 / (1 << 20));
  near("rsqrt.approx.f32", [](double x) { return 1 / std::sqrt(x); }, 0.1, 100, 1.0 / (1 << 22));
  near("rcp.approx.ftz.f32", [](double x) { return 1 / x; }, 0.1, 100, 1.0 / (1 << 23));
  near("sqrt.approx.f32", [](double x) { return std::sqrt(x); }, 0.1, 100, 1.0 / (1 << 23));
  near("tanh.approx.f32", [](double x) { return std::tanh(x); }, 0.1, 5, 1.0 / (1 << 10));
}

TEST(SmallFloats, AreRoundedOnce) {
  for (const auto& [name, mantissa] : {std::pair{"f16", kHalfBits}, std::pair{"bf16", kBfloatBits}}) {
    const int m = mantissa;
    const auto v = [m](Bits16 x) { return static_cast<long double>(ValueOf(x.bits, m)); };
    Check<Bits16, Bits16, Bits16, Bits16>(absl::StrCat("add.rn.", name, " $d, $a, $b;"), [=](Bits16 a, Bits16 b, Bits16) { return Bits16{Nearest(v(a) + v(b), m)}; });
    Check<Bits16, Bits16, Bits16, Bits16>(absl::StrCat("sub.rn.", name, " $d, $a, $b;"), [=](Bits16 a, Bits16 b, Bits16) { return Bits16{Nearest(v(a) - v(b), m)}; });
    Check<Bits16, Bits16, Bits16, Bits16>(absl::StrCat("mul.rn.", name, " $d, $a, $b;"), [=](Bits16 a, Bits16 b, Bits16) { return Bits16{Nearest(v(a) * v(b), m)}; });
    Check<Bits16, Bits16, Bits16, Bits16>(absl::StrCat("max.", name, " $d, $a, $b;"), [=](Bits16 a, Bits16 b, Bits16) {
      if (std::isnan(v(a)) && std::isnan(v(b))) return Bits16{0x7fff};
      if (std::isnan(v(a))) return b;
      if (std::isnan(v(b))) return a;
      return v(a) == v(b) ? (std::signbit(v(a)) ? b : a) : v(a) > v(b) ? a : b;
    });
    Check<Bits16, float, float, float>(absl::StrCat("cvt.rn.", name, ".f32 $d, $a;"), [=](float a, float, float) { return Bits16{Nearest(a, m)}; });
    Check<Bits16, double, double, double>(absl::StrCat("cvt.rn.", name, ".f64 $d, $a;"), [=](double a, double, double) { return Bits16{Nearest(a, m)}; });
    Check<Bits16, I64, I64, I64>(absl::StrCat("cvt.rn.", name, ".s64 $d, $a;"), [=](I64 a, I64, I64) { return Bits16{Nearest(a, m)}; });
    Check<float, Bits16, Bits16, Bits16>(absl::StrCat("cvt.f32.", name, " $d, $a;"), [=](Bits16 a, Bits16, Bits16) { return static_cast<float>(ValueOf(a.bits, m)); });
    Check<U32, U32, U32, U32>(absl::StrCat("mul.rn.", name, "x2 $d, $a, $b;"), [=](U32 a, U32 b, U32) {
      const U32 low = Nearest(v({uint16_t(a)}) * v({uint16_t(b)}), m), high = Nearest(v({uint16_t(a >> 16)}) * v({uint16_t(b >> 16)}), m);
      return high << 16 | low;
    });
    Check<U32, float, float, U32>(absl::StrCat("cvt.rn.", name, "x2.f32 $d, $a, $b;"), [=](float a, float b, U32) { return U32{Nearest(a, m)} << 16 | Nearest(b, m); });
  }
  // f16's products and sums fit the 64 bits of long double's mantissa; bf16's exponents are too far apart for that.
  const auto v = [](Bits16 x) { return static_cast<long double>(ValueOf(x.bits, kHalfBits)); };
  Check<Bits16, Bits16, Bits16, Bits16>("fma.rn.f16 $d, $a, $b, $c;", [=](Bits16 a, Bits16 b, Bits16 c) {
    const long double product = v(a) * v(b), sum = product + v(c);
    // Beyond 64 bits apart the smaller one only breaks ties, which random inputs do not have.
    return Bits16{Nearest(sum, kHalfBits)};
  });
}

TEST(Conversions, BetweenIntegersAndFloats) {
  Check<I32, I64, I64, I64>("cvt.s32.s64 $d, $a;", [](I64 a, I64, I64) { return static_cast<I32>(a); });
  Check<I64, I32, I32, I32>("cvt.s64.s32 $d, $a;", [](I32 a, I32, I32) { return I64{a}; });
  Check<U64, U32, U32, U32>("cvt.u64.u32 $d, $a;", [](U32 a, U32, U32) { return U64{a}; });
  Check<I32, I32, I32, I32>("cvt.s32.s8 $d, $a;", [](I32 a, I32, I32) { return I32{static_cast<int8_t>(a)}; });
  Check<U32, I32, I32, I32>("cvt.sat.u8.s32 $d, $a;", [](I32 a, I32, I32) { return U32(std::clamp(a, 0, 255)); });
  Check<I32, I64, I64, I64>("cvt.sat.s32.s64 $d, $a;", [](I64 a, I64, I64) { return I32(std::clamp<I64>(a, INT32_MIN, INT32_MAX)); });
  Check<I32, U64, U64, U64>("cvt.sat.s32.u64 $d, $a;", [](U64 a, U64, U64) { return I32(std::min<U64>(a, INT32_MAX)); });
  const auto saturated = [](double whole, double low, double high) { return std::isnan(whole) ? 0 : std::clamp(whole, low, high); };
  Check<I32, float, float, float>("cvt.rzi.s32.f32 $d, $a;", [&](float a, float, float) { return I32(saturated(std::trunc(a), INT32_MIN, INT32_MAX)); });
  Check<I32, float, float, float>("cvt.rni.s32.f32 $d, $a;", [&](float a, float, float) { return I32(saturated(std::nearbyint(a), INT32_MIN, INT32_MAX)); });
  Check<I32, double, double, double>("cvt.rmi.s32.f64 $d, $a;", [&](double a, double, double) { return I32(saturated(std::floor(a), INT32_MIN, INT32_MAX)); });
  Check<U32, float, float, float>("cvt.rpi.u32.f32 $d, $a;", [&](float a, float, float) { return U32(saturated(std::ceil(a), 0, UINT32_MAX)); });
  Check<I64, double, double, double>("cvt.rzi.s64.f64 $d, $a;", [](double a, double, double) {
    if (std::isnan(a)) return I64{0};
    return a >= 0x1p63 ? INT64_MAX : a < -0x1p63 ? INT64_MIN : I64(a);
  });
  Check<float, I64, I64, I64>("cvt.rn.f32.s64 $d, $a;", [](I64 a, I64, I64) { return static_cast<float>(a); });
  Check<float, U64, U64, U64>("cvt.rz.f32.u64 $d, $a;", [](U64 a, U64, U64) { volatile U64 x = a; return InMode<float>(FE_TOWARDZERO, [&] { return static_cast<float>(U64{x}); }); });
  Check<double, U32, U32, U32>("cvt.rn.f64.u32 $d, $a;", [](U32 a, U32, U32) { return double{1} * a; });
  Check<float, double, double, double>("cvt.rn.f32.f64 $d, $a;", [](double a, double, double) { return static_cast<float>(a); });
  Check<double, float, float, float>("cvt.f64.f32 $d, $a;", [](float a, float, float) { return double{a}; });
  Check<float, float, float, float>("cvt.rzi.f32.f32 $d, $a;", [](float a, float, float) { return std::trunc(a); });
  Check<float, float, float, float>("cvt.sat.f32.f32 $d, $a;", [](float a, float, float) { return a > 0 ? std::min(a, 1.0f) : 0; });
  // tf32: 10 bits of mantissa, ties away from zero.
  Check<U32, float, float, float>("cvt.rna.tf32.f32 $d, $a;", [](float a, float, float) {
    U32 bits;
    std::memcpy(&bits, &a, 4);
    if (std::isnan(a)) return 0x7fffe000u;
    return std::isinf(a) ? bits : (bits + 0x1000) & ~0x1fffu;
  });
}

// Every pair of 8-bit codes to f16 and back is itself, and a table of known values holds.
TEST(Conversions, EightBitFloats) {
  for (const char* type : {"e4m3x2", "e5m2x2"}) {
    Check<U32, U32, U32, U32>(absl::StrCat("cvt.u16.u32 %h1, $a;\ncvt.rn.f16x2.", type, " %r50, %h1;\nmov.b32 {%h2, %h3}, %r50;\n",
                                           "cvt.f32.f16 %f1, %h2;\ncvt.f32.f16 %f2, %h3;\ncvt.rn.satfinite.", type,
                                           ".f32 %h4, %f2, %f1;\ncvt.u32.u16 $d, %h4;"),
                              [type](U32 a, U32, U32) {
                                const bool e4m3 = type[1] == '4';
                                const auto same = [&](U32 code) {
                                  const bool nan = e4m3 ? (code & 0x7f) == 0x7f : (code & 0x7f) > 0x7c;
                                  // Infinity saturates to the largest finite value.
                                  if (!e4m3 && (code & 0x7f) == 0x7c) return code - 1;
                                  return nan ? 0x7fu : code;
                                };
                                return same(a >> 8 & 255) << 8 | same(a & 255);
                              });
  }
  EXPECT_EQ(Decode(0x38, kE4m3Format), 1.0);
  EXPECT_EQ(Decode(0x7e, kE4m3Format), 448.0);
  EXPECT_EQ(Decode(0x01, kE4m3Format), 0x1p-9);
  EXPECT_EQ(Decode(0x3c, kE5m2Format), 1.0);
  EXPECT_EQ(Decode(0x7b, kE5m2Format), 57344.0);
}

TEST(Parser, WhatItDoesNotKnow_IsNamedWithItsLine) {
  const auto error = [](const std::string& body) { return std::string(Parse(KernelText({".u64"}, body)).status().message()); };
  EXPECT_EQ(error("frobnicate.b32 %r1, %r2;"), "PTX line 13: frobnicate.b32: unknown instruction");
  EXPECT_EQ(error("\nadd.odd.s32 %r1, %r2, %r3;"), "PTX line 14: add.odd.s32: unknown modifier '.odd'");
  EXPECT_EQ(error("add.s32 %r1, %r2, %r999;"), "PTX line 13: add.s32: unknown operand '%r999'");
  EXPECT_EQ(error("add.s32 %r1, %r2;"), "PTX line 13: add.s32: has 2 operands");
  EXPECT_EQ(error("bra NOWHERE;"), "PTX line 13: no label 'NOWHERE'");
  EXPECT_EQ(error("wgmma.mma_async.sync.aligned.m64n7k16.f32.bf16.bf16 {%f1}, %d1, %d2, 1, 1, 1, 0, 0;"),
            "PTX line 13: wgmma.mma_async.sync.aligned.m64n7k16.f32.bf16.bf16: unknown shape");
  EXPECT_FALSE(Parse(".version 8.0\n.target sm_80\n.func f() { ret; }").ok());
}

}  // namespace
}  // namespace outboard::ptx
