// Instructions of one lane: integers, floats, logic, selection, moves.
//
// Functions that PTX calls approximate are rounded correctly: within PTX's bounds, and the same on every host whose
// libm rounds correctly in double.
#include <cfenv>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "tests/gpu/ptx/execution.h"

namespace outboard::ptx {
namespace {

struct F16 {
  uint16_t bits;
};
struct Bf16 {
  uint16_t bits;
};

template <class T>
inline T Get(uint64_t bits) {
  if constexpr (std::is_same_v<T, float>) return std::bit_cast<float>(static_cast<uint32_t>(bits));
  else if constexpr (std::is_same_v<T, double>) return std::bit_cast<double>(bits);
  else if constexpr (std::is_same_v<T, F16> || std::is_same_v<T, Bf16>)
    return {static_cast<uint16_t>(bits)};
  else return static_cast<T>(bits);
}
template <class T>
inline uint64_t Put(T value) {
  if constexpr (std::is_same_v<T, float>) return std::bit_cast<uint32_t>(value);
  else if constexpr (std::is_same_v<T, double>) return std::bit_cast<uint64_t>(value);
  else if constexpr (std::is_same_v<T, F16> || std::is_same_v<T, Bf16>) return value.bits;
  else if constexpr (std::is_same_v<T, bool>) return value;
  else return static_cast<std::make_unsigned_t<T>>(value);
}

// Calls f(lane) for the lanes of `mask`. All 32 is the common case, and the one that compilers vectorise.
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
bool WithInteger(Type type, F f) {
  switch (type) {
    case Type::kU8: case Type::kB8: f(uint8_t{}); return true;
    case Type::kS8: f(int8_t{}); return true;
    case Type::kU16: case Type::kB16: f(uint16_t{}); return true;
    case Type::kS16: f(int16_t{}); return true;
    case Type::kU32: case Type::kB32: f(uint32_t{}); return true;
    case Type::kS32: f(int32_t{}); return true;
    case Type::kU64: case Type::kB64: f(uint64_t{}); return true;
    case Type::kS64: f(int64_t{}); return true;
    default: return false;
  }
}

template <class T>
using Wider = std::conditional_t<
    sizeof(T) == 8, std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>,
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

template <class T>
void Integer(Warp* w, const Instruction& in, uint32_t mask) {
  using U = std::make_unsigned_t<T>;
  using W = Wider<T>;
  constexpr int kBits = 8 * sizeof(T);
  switch (in.op) {
    case Op::kAdd:
      if (in.sat) return Map2<T>(w, in, mask, [](T a, T b) { return Saturate<T>(W{a} + W{b}); });
      return Map2<T>(w, in, mask, [](T a, T b) { return static_cast<T>(static_cast<U>(a) + static_cast<U>(b)); });
    case Op::kSub:
      if (in.sat) return Map2<T>(w, in, mask, [](T a, T b) { return Saturate<T>(W{a} - W{b}); });
      return Map2<T>(w, in, mask, [](T a, T b) { return static_cast<T>(static_cast<U>(a) - static_cast<U>(b)); });
    case Op::kMul:
      switch (static_cast<Half>(in.mode)) {
        case Half::kLow: return Map2<T>(w, in, mask, [](T a, T b) { return Wrap<T>(W{a} * W{b}); });
        case Half::kHigh:
          return Map2<T>(w, in, mask, [](T a, T b) { return Wrap<T>((W{a} * W{b}) >> kBits); });
        case Half::kWide: {
          using D = std::conditional_t<sizeof(T) == 2, std::conditional_t<std::is_signed_v<T>, int32_t, uint32_t>,
                                       std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>>;
          return Map2<T>(w, in, mask, [](T a, T b) { return static_cast<D>(W{a} * W{b}); });
        }
      }
      return;
    case Op::kMad: {
      const auto half = static_cast<Half>(in.mode);
      if (half == Half::kLow)
        return Map3<T>(w, in, mask, [](T a, T b, T c) { return static_cast<T>(static_cast<U>(Wrap<T>(W{a} * W{b})) + static_cast<U>(c)); });
      if (half == Half::kHigh)
        return Map3<T>(w, in, mask, [&](T a, T b, T c) {
          const W sum = W{Wrap<T>((W{a} * W{b}) >> kBits)} + W{c};
          return in.sat ? Saturate<T>(sum) : Wrap<T>(sum);
        });
      const uint64_t *a = w->row(in.a), *b = w->row(in.b), *c = w->row(in.c);
      uint64_t* d = w->row(in.d);
      ForLanes(mask, [&](int i) {
        const uint64_t product = static_cast<uint64_t>(W{Get<T>(a[i])} * W{Get<T>(b[i])});
        d[i] = sizeof(T) == 2 ? static_cast<uint32_t>(product + c[i]) : product + c[i];
      });
      return;
    }
    case Op::kMul24: case Op::kMad24: {
      const uint64_t *a = w->row(in.a), *b = w->row(in.b);
      const uint64_t* c = in.op == Op::kMad24 ? w->row(in.c) : nullptr;
      uint64_t* d = w->row(in.d);
      ForLanes(mask, [&](int i) {
        const auto cut = [](uint64_t x) -> int64_t {
          return std::is_signed_v<T> ? static_cast<int64_t>(x << 40) >> 40 : static_cast<int64_t>(x & 0xffffff);
        };
        const int64_t product = cut(a[i]) * cut(b[i]);
        const int64_t part = in.mode == 1 ? product >> 16 : product;
        d[i] = static_cast<uint32_t>(part + (c != nullptr ? static_cast<int64_t>(c[i]) : 0));
      });
      return;
    }
    case Op::kSad:
      return Map3<T>(w, in, mask, [](T a, T b, T c) {
        return static_cast<T>(static_cast<U>(c) + (a > b ? static_cast<U>(a) - static_cast<U>(b) : static_cast<U>(b) - static_cast<U>(a)));
      });
    // Division by zero gives machine-specific values in PTX; all ones is what devices give.
    case Op::kDiv:
      return Map2<T>(w, in, mask, [](T a, T b) {
        return b == 0 ? static_cast<T>(~U{0}) : std::is_signed_v<T> && b == static_cast<T>(-1)
                            ? static_cast<T>(U{0} - static_cast<U>(a)) : static_cast<T>(a / b);
      });
    case Op::kRem:
      return Map2<T>(w, in, mask, [](T a, T b) {
        return b == 0 ? a : std::is_signed_v<T> && b == static_cast<T>(-1) ? T{0} : static_cast<T>(a % b);
      });
    case Op::kAbs: return Map1<T>(w, in, mask, [](T a) { return a < 0 ? static_cast<T>(U{0} - static_cast<U>(a)) : a; });
    case Op::kNeg: return Map1<T>(w, in, mask, [](T a) { return static_cast<T>(U{0} - static_cast<U>(a)); });
    case Op::kMin:
      return Map2<T>(w, in, mask, [&](T a, T b) {
        const T r = a < b ? a : b;
        return in.relu && r < 0 ? T{0} : r;
      });
    case Op::kMax:
      return Map2<T>(w, in, mask, [&](T a, T b) {
        const T r = a > b ? a : b;
        return in.relu && r < 0 ? T{0} : r;
      });
    case Op::kAnd: return Map2<U>(w, in, mask, [](U a, U b) { return static_cast<U>(a & b); });
    case Op::kOr: return Map2<U>(w, in, mask, [](U a, U b) { return static_cast<U>(a | b); });
    case Op::kXor: return Map2<U>(w, in, mask, [](U a, U b) { return static_cast<U>(a ^ b); });
    case Op::kNot: return Map1<U>(w, in, mask, [](U a) { return static_cast<U>(~a); });
    case Op::kCnot: return Map1<U>(w, in, mask, [](U a) { return static_cast<U>(a == 0); });
    // The amount of a shift is a u32 whatever the type, and is clamped.
    case Op::kShl: case Op::kShr: {
      const uint64_t *a = w->row(in.a), *b = w->row(in.b);
      uint64_t* d = w->row(in.d);
      const bool left = in.op == Op::kShl;
      ForLanes(mask, [&](int i) {
        const uint32_t n = static_cast<uint32_t>(b[i]);
        const T value = Get<T>(a[i]);
        if (left) d[i] = Put<U>(n >= kBits ? U{0} : static_cast<U>(static_cast<U>(value) << n));
        else if (std::is_signed_v<T>) d[i] = Put<T>(static_cast<T>(value >> (n >= kBits ? kBits - 1 : n)));
        else d[i] = Put<T>(n >= kBits ? T{0} : static_cast<T>(value >> n));
      });
      return;
    }
    case Op::kPopc: return Map1<U>(w, in, mask, [](U a) { return static_cast<uint32_t>(std::popcount(a)); });
    case Op::kClz: return Map1<U>(w, in, mask, [](U a) { return static_cast<uint32_t>(std::countl_zero(a)); });
    case Op::kBfind:
      return Map1<T>(w, in, mask, [&](T a) {
        const U bits = static_cast<U>(std::is_signed_v<T> && a < 0 ? ~a : a);
        const int msb = kBits - 1 - std::countl_zero(bits);
        return msb < 0 ? ~0u : static_cast<uint32_t>(in.mode != 0 ? kBits - 1 - msb : msb);
      });
    case Op::kBrev:
      return Map1<U>(w, in, mask, [](U a) {
        U r = 0;
        for (int i = 0; i < kBits; ++i) r = static_cast<U>(r << 1 | (a >> i & 1));
        return r;
      });
    case Op::kBfe: {
      const uint64_t *a = w->row(in.a), *b = w->row(in.b), *c = w->row(in.c);
      uint64_t* d = w->row(in.d);
      ForLanes(mask, [&](int i) {
        const U value = Get<U>(a[i]);
        const int pos = static_cast<int>(b[i] & 0xff), len = static_cast<int>(c[i] & 0xff);
        U r = 0;
        if (len > 0) {
          if (pos < kBits) r = static_cast<U>(value >> pos);
          if (len < kBits) r &= static_cast<U>((U{1} << len) - 1);
          if (std::is_signed_v<T>) {
            const bool sign = value >> std::min(pos + len - 1, kBits - 1) & 1;
            const int width = pos >= kBits ? 0 : std::min(len, kBits - pos);
            if (sign && width < kBits) r |= static_cast<U>(~U{0} << width);
          }
        }
        d[i] = r;
      });
      return;
    }
    case Op::kBfi: {
      const uint64_t *a = w->row(in.a), *b = w->row(in.b), *c = w->row(in.c), *e = w->row(in.e);
      uint64_t* d = w->row(in.d);
      ForLanes(mask, [&](int i) {
        const int pos = static_cast<int>(c[i] & 0xff), len = static_cast<int>(e[i] & 0xff);
        U r = Get<U>(b[i]);
        for (int k = 0; k < len && pos + k < kBits; ++k) {
          const U bit = U{1} << (pos + k);
          r = static_cast<U>(a[i] >> k & 1 ? r | bit : r & ~bit);
        }
        d[i] = r;
      });
      return;
    }
    case Op::kBmsk: {
      const uint64_t *a = w->row(in.a), *b = w->row(in.b);
      uint64_t* d = w->row(in.d);
      ForLanes(mask, [&](int i) {
        uint32_t pos = static_cast<uint32_t>(a[i]), len = static_cast<uint32_t>(b[i]);
        if (!in.sat) pos &= 31, len &= 31;
        const uint64_t ones = len >= 32 ? 0xffffffffull : (uint64_t{1} << len) - 1;
        d[i] = pos >= 32 ? 0 : static_cast<uint32_t>(ones << pos);
      });
      return;
    }
    case Op::kSzext: {
      const uint64_t *a = w->row(in.a), *b = w->row(in.b);
      uint64_t* d = w->row(in.d);
      ForLanes(mask, [&](int i) {
        uint32_t n = static_cast<uint32_t>(b[i]);
        if (!in.sat) n &= 31;
        const uint32_t value = static_cast<uint32_t>(a[i]);
        if (n >= 32) d[i] = value;
        else if (n == 0) d[i] = 0;
        else if (std::is_signed_v<T>) d[i] = static_cast<uint32_t>(static_cast<int32_t>(value << (32 - n)) >> (32 - n));
        else d[i] = value & ((1u << n) - 1);
      });
      return;
    }
    case Op::kSelp: {
      const uint64_t *a = w->row(in.a), *b = w->row(in.b), *c = w->row(in.c);
      uint64_t* d = w->row(in.d);
      ForLanes(mask, [&](int i) { d[i] = static_cast<U>(c[i] & 1 ? a[i] : b[i]); });
      return;
    }
    case Op::kMov: return Map1<U>(w, in, mask, [](U a) { return a; });
    case Op::kAddCarry: case Op::kSubCarry: case Op::kMadCarry: {
      const uint64_t *a = w->row(in.a), *b = w->row(in.b);
      const uint64_t* c = in.op == Op::kMadCarry ? w->row(in.c) : nullptr;
      uint64_t *d = w->row(in.d), *carry = w->row(in.e);
      ForLanes(mask, [&](int i) {
        const unsigned in_carry = in.flags & kFlagCarryIn ? carry[i] & 1 : 0;
        unsigned __int128 x = Get<U>(a[i]), y = Get<U>(b[i]);
        if (in.op == Op::kMadCarry) {
          const W product = W{Get<T>(a[i])} * W{Get<T>(b[i])};
          x = static_cast<U>(in.mode == 1 ? product >> kBits : product);
          y = Get<U>(c[i]);
        }
        const unsigned __int128 r = in.op == Op::kSubCarry ? x - y - in_carry : x + y + in_carry;
        d[i] = static_cast<U>(r);
        if (in.flags & kFlagCarryOut) carry[i] = static_cast<uint64_t>(r >> kBits) & 1;
      });
      return;
    }
    default: return;
  }
}

// Runs `f` in the rounding mode of an instruction.
template <class F>
auto Rounded(Rounding rounding, F f) {
  if (rounding == Rounding::kNearest) return f();
  const int mode = rounding == Rounding::kZero ? FE_TOWARDZERO
                   : rounding == Rounding::kDown ? FE_DOWNWARD : FE_UPWARD;
  std::fesetround(mode);
  auto result = f();
  std::fesetround(FE_TONEAREST);
  return result;
}

template <class T>
T MinOf(T a, T b, bool nan) {
  if (std::isnan(a) || std::isnan(b)) return nan || (std::isnan(a) && std::isnan(b)) ? std::numeric_limits<T>::quiet_NaN() : std::isnan(a) ? b : a;
  if (a == b) return std::signbit(a) ? a : b;
  return a < b ? a : b;
}
template <class T>
T MaxOf(T a, T b, bool nan) {
  if (std::isnan(a) || std::isnan(b)) return nan || (std::isnan(a) && std::isnan(b)) ? std::numeric_limits<T>::quiet_NaN() : std::isnan(a) ? b : a;
  if (a == b) return std::signbit(a) ? b : a;
  return a > b ? a : b;
}

// One operation in T; `volatile` keeps it where the rounding mode is.
template <class T>
T Compute(const Instruction& in, T a, T b, T c) {
  volatile T x = a, y = b, z = c;
  switch (in.op) {
    case Op::kAdd: return x + y;
    case Op::kSub: return x - y;
    case Op::kMul: return x * y;
    case Op::kDiv: return x / y;
    case Op::kFma: case Op::kMad: return std::fma(T{x}, T{y}, T{z});
    case Op::kRcp: return T{1} / x;
    case Op::kSqrt: return std::sqrt(T{x});
    default: return 0;
  }
}

float Function32(const Instruction& in, float value) {
  const double x = value;
  switch (in.op) {
    case Op::kRsqrt: return static_cast<float>(1.0 / std::sqrt(x));
    case Op::kSin: return static_cast<float>(std::sin(x));
    case Op::kCos: return static_cast<float>(std::cos(x));
    case Op::kLg2: return static_cast<float>(std::log2(x));
    case Op::kEx2: return static_cast<float>(std::exp2(x));
    case Op::kTanh: return static_cast<float>(std::tanh(x));
    default: return 0;
  }
}

template <class T>
void Float(Warp* w, const Instruction& in, uint32_t mask) {
  const auto flush = [&](T x) {
    if constexpr (std::is_same_v<T, float>) return in.ftz ? FlushDenormal(x) : x;
    else return x;
  };
  const auto finish = [&](T x) {
    x = flush(x);
    if (in.sat) x = x > 0 ? std::min(x, T{1}) : T{0};  // NaN and -0 become +0
    if (std::isnan(x)) {
      if constexpr (std::is_same_v<T, float>) x = std::bit_cast<float>(kNanF32);
      else x = std::bit_cast<double>(kNanF64);
    }
    return x;
  };
  const bool plain = in.rounding == Rounding::kNearest && !in.ftz && !in.sat;
  switch (in.op) {
    case Op::kAdd: if (plain) return Map2<T>(w, in, mask, [&](T a, T b) { return finish(a + b); }); break;
    case Op::kSub: if (plain) return Map2<T>(w, in, mask, [&](T a, T b) { return finish(a - b); }); break;
    case Op::kMul: if (plain) return Map2<T>(w, in, mask, [&](T a, T b) { return finish(a * b); }); break;
    case Op::kFma: case Op::kMad:
      if (plain) return Map3<T>(w, in, mask, [&](T a, T b, T c) { return finish(std::fma(a, b, c)); });
      return Map3<T>(w, in, mask, [&](T a, T b, T c) {
        return finish(Rounded(in.rounding, [&] { return Compute<T>(in, flush(a), flush(b), flush(c)); }));
      });
    case Op::kDiv: break;
    case Op::kRcp: case Op::kSqrt:
      return Map1<T>(w, in, mask, [&](T a) {
        return finish(Rounded(in.rounding, [&] { return Compute<T>(in, flush(a), 0, 0); }));
      });
    case Op::kRsqrt: case Op::kSin: case Op::kCos: case Op::kLg2: case Op::kEx2: case Op::kTanh:
      if constexpr (std::is_same_v<T, float>) {
        return Map1<T>(w, in, mask, [&](T a) { return finish(Function32(in, flush(a))); });
      } else {
        return Map1<T>(w, in, mask, [&](T a) { return finish(1.0 / std::sqrt(a)); });
      }
    case Op::kMin:
      return Map2<T>(w, in, mask, [&](T a, T b) { return finish(MinOf(flush(a), flush(b), in.nan)); });
    case Op::kMax:
      return Map2<T>(w, in, mask, [&](T a, T b) { return finish(MaxOf(flush(a), flush(b), in.nan)); });
    case Op::kAbs: return Map1<T>(w, in, mask, [&](T a) { return finish(std::fabs(flush(a))); });
    case Op::kNeg: return Map1<T>(w, in, mask, [&](T a) { return flush(-a); });
    case Op::kCopysign: return Map2<T>(w, in, mask, [&](T a, T b) { return std::copysign(b, a); });
    case Op::kSelp: {
      const uint64_t *a = w->row(in.a), *b = w->row(in.b), *c = w->row(in.c);
      uint64_t* d = w->row(in.d);
      ForLanes(mask, [&](int i) { d[i] = c[i] & 1 ? a[i] : b[i]; });
      return;
    }
    case Op::kMov: {
      const uint64_t* a = w->row(in.a);
      uint64_t* d = w->row(in.d);
      ForLanes(mask, [&](int i) { d[i] = a[i]; });
      return;
    }
    default: return;
  }
  Map2<T>(w, in, mask, [&](T a, T b) {
    return finish(Rounded(in.rounding, [&] { return Compute<T>(in, flush(a), flush(b), 0); }));
  });
}

// Half types: one element, in double, rounded once.
uint16_t Small(const Instruction& in, FloatFormat format, uint16_t x, uint16_t y, uint16_t z) {
  const int sign_shift = format.exponent_bits + format.mantissa_bits;
  const uint16_t sign = static_cast<uint16_t>(1u << sign_shift);
  if (in.op == Op::kAbs) return static_cast<uint16_t>(x & ~sign);
  if (in.op == Op::kNeg) return static_cast<uint16_t>(x ^ sign);
  const auto decode = [&](uint16_t bits) {
    double value = Decode(bits, format);
    if (in.ftz && value != 0 && (bits >> format.mantissa_bits & ((1 << format.exponent_bits) - 1)) == 0)
      value = std::copysign(0.0, value);
    return value;
  };
  const double a = decode(x), b = decode(y), c = decode(z);
  double r = 0;
  switch (in.op) {
    case Op::kAdd: r = OddAdd(a, b); break;
    case Op::kSub: r = OddAdd(a, -b); break;
    case Op::kMul: r = a * b; break;
    case Op::kFma: r = OddFma(a, b, c); break;
    case Op::kMin: r = MinOf(a, b, in.nan); break;
    case Op::kMax: r = MaxOf(a, b, in.nan); break;
    case Op::kEx2: r = std::exp2(a); break;
    case Op::kTanh: r = std::tanh(a); break;
    case Op::kCopysign: return static_cast<uint16_t>((y & ~sign) | (x & sign));
    default: break;
  }
  if (in.relu && (r < 0 || std::isnan(r))) r = std::isnan(r) ? r : 0;
  if (in.sat) r = r > 0 ? std::min(r, 1.0) : 0;
  uint32_t bits = Encode(r, format);
  if (in.ftz && (bits >> format.mantissa_bits & ((1u << format.exponent_bits) - 1)) == 0) bits &= sign;
  return static_cast<uint16_t>(bits);
}

void SmallFloat(Warp* w, const Instruction& in, uint32_t mask) {
  const bool half = in.type == Type::kF16 || in.type == Type::kF16x2;
  const bool pair = in.type == Type::kF16x2 || in.type == Type::kBf16x2;
  const FloatFormat format = half ? kHalfFormat : kBfloatFormat;
  const uint64_t* a = w->row(in.a);
  const uint64_t* b = in.b >= 0 ? w->row(in.b) : a;
  const uint64_t* c = in.c >= 0 ? w->row(in.c) : a;
  uint64_t* d = w->row(in.d);
  if (in.op == Op::kMov || in.op == Op::kSelp) {
    ForLanes(mask, [&](int i) { d[i] = in.op == Op::kMov || (c[i] & 1) ? a[i] : b[i]; });
    return;
  }
  ForLanes(mask, [&](int i) {
    const auto part = [](uint64_t x, int k) { return static_cast<uint16_t>(x >> (16 * k)); };
    uint64_t r = Small(in, format, part(a[i], 0), part(b[i], 0), part(c[i], 0));
    if (pair) r |= uint64_t{Small(in, format, part(a[i], 1), part(b[i], 1), part(c[i], 1))} << 16;
    d[i] = r;
  });
}

template <class T>
bool Compares(Compare compare, T a, T b) {
  bool unordered = false;
  if constexpr (std::is_floating_point_v<T>) unordered = std::isnan(a) || std::isnan(b);
  switch (compare) {
    case Compare::kEq: return a == b;
    case Compare::kNe: return a != b && !unordered;
    case Compare::kLt: return a < b;
    case Compare::kLe: return a <= b;
    case Compare::kGt: return a > b;
    case Compare::kGe: return a >= b;
    case Compare::kEqu: return a == b || unordered;
    case Compare::kNeu: return a != b;
    case Compare::kLtu: return a < b || unordered;
    case Compare::kLeu: return a <= b || unordered;
    case Compare::kGtu: return a > b || unordered;
    case Compare::kGeu: return a >= b || unordered;
    case Compare::kNum: return !unordered;
    case Compare::kNan: return unordered;
  }
  return false;
}

bool CompareBits(const Instruction& in, Type type, uint64_t a, uint64_t b) {
  const auto compare = static_cast<Compare>(in.mode);
  bool result = false;
  if (WithInteger(type, [&](auto t) { result = Compares(compare, Get<decltype(t)>(a), Get<decltype(t)>(b)); }))
    return result;
  switch (type) {
    case Type::kF32: {
      float x = Get<float>(a), y = Get<float>(b);
      if (in.ftz) x = FlushDenormal(x), y = FlushDenormal(y);
      return Compares(compare, x, y);
    }
    case Type::kF64: return Compares(compare, Get<double>(a), Get<double>(b));
    case Type::kF16: case Type::kF16x2:
      return Compares(compare, HalfToFloat(static_cast<uint16_t>(a)), HalfToFloat(static_cast<uint16_t>(b)));
    case Type::kBf16: case Type::kBf16x2:
      return Compares(compare, BfloatToFloat(static_cast<uint16_t>(a)), BfloatToFloat(static_cast<uint16_t>(b)));
    default: return false;
  }
}
bool Joined(Logic logic, bool x, bool c) {
  switch (logic) {
    case Logic::kNone: return x;
    case Logic::kAnd: return x && c;
    case Logic::kOr: return x || c;
    case Logic::kXor: return x != c;
  }
  return x;
}

void SetPredicate(Warp* w, const Instruction& in, uint32_t mask) {
  const uint64_t *a = w->row(in.a), *b = w->row(in.b);
  const uint64_t* c = in.c >= 0 ? w->row(in.c) : nullptr;
  uint64_t* d = w->row(in.d);
  uint64_t* d2 = in.d2 >= 0 ? w->row(in.d2) : nullptr;
  const bool pair = in.type == Type::kF16x2 || in.type == Type::kBf16x2;
  // The common case, without calls: one predicate of 32-bit integers.
  if (d2 == nullptr && c == nullptr && (in.type == Type::kS32 || in.type == Type::kU32)) {
    const auto all = [&](auto compare) {
      if (in.type == Type::kS32)
        ForLanes(mask, [&](int i) { d[i] = compare(static_cast<int32_t>(a[i]), static_cast<int32_t>(b[i])); });
      else
        ForLanes(mask, [&](int i) { d[i] = compare(static_cast<uint32_t>(a[i]), static_cast<uint32_t>(b[i])); });
    };
    switch (static_cast<Compare>(in.mode)) {
      case Compare::kEq: return all([](auto x, auto y) { return x == y; });
      case Compare::kNe: return all([](auto x, auto y) { return x != y; });
      case Compare::kLt: return all([](auto x, auto y) { return x < y; });
      case Compare::kLe: return all([](auto x, auto y) { return x <= y; });
      case Compare::kGt: return all([](auto x, auto y) { return x > y; });
      case Compare::kGe: return all([](auto x, auto y) { return x >= y; });
      default: break;
    }
  }
  ForLanes(mask, [&](int i) {
    const bool joined = c != nullptr && (c[i] & 1);
    const bool x = CompareBits(in, in.type, a[i], b[i]);
    // Of a pair, the second predicate is the second element's; else it is the complement.
    const bool y = pair ? CompareBits(in, in.type, a[i] >> 16, b[i] >> 16) : !x;
    d[i] = Joined(in.logic, x, joined);
    if (d2 != nullptr) d2[i] = Joined(in.logic, y, joined);
  });
}

void SetValue(Warp* w, const Instruction& in, uint32_t mask) {
  const uint64_t *a = w->row(in.a), *b = w->row(in.b);
  const uint64_t* c = in.c >= 0 ? w->row(in.c) : nullptr;
  uint64_t* d = w->row(in.d);
  const auto one = [&](bool set) -> uint64_t {
    if (!set) return 0;
    switch (in.type) {
      case Type::kF32: return 0x3f800000;
      case Type::kF16: case Type::kF16x2: return 0x3c00;
      case Type::kBf16: case Type::kBf16x2: return 0x3f80;
      case Type::kU16: case Type::kS16: return 0xffff;
      default: return 0xffffffff;
    }
  };
  const bool pair = in.from == Type::kF16x2 || in.from == Type::kBf16x2;
  ForLanes(mask, [&](int i) {
    const bool joined = c != nullptr && (c[i] & 1);
    d[i] = one(Joined(in.logic, CompareBits(in, in.from, a[i], b[i]), joined));
    if (!pair) return;
    const bool high = Joined(in.logic, CompareBits(in, in.from, a[i] >> 16, b[i] >> 16), joined);
    const uint64_t high_bits = in.type == Type::kU32 || in.type == Type::kS32 ? 0xffff : one(true);
    d[i] = (d[i] & 0xffff) | (high ? high_bits << 16 : 0);
  });
}

uint32_t Permuted(uint32_t a, uint32_t b, uint32_t c, int mode) {
  const uint64_t both = uint64_t{b} << 32 | a;
  const auto byte = [&](uint32_t i) { return static_cast<uint32_t>(both >> (8 * (i & 7)) & 0xff); };
  uint32_t r = 0;
  const uint32_t n = c & 3;
  for (uint32_t i = 0; i < 4; ++i) {
    uint32_t value = 0;
    switch (mode) {
      case 0: {
        const uint32_t select = c >> (4 * i) & 15;
        value = byte(select & 7);
        if (select & 8) value = value & 0x80 ? 0xff : 0;
        break;
      }
      case 1: value = byte(n + i); break;                  // f4e
      case 2: value = byte((n - i) & 7); break;            // b4e
      case 3: value = byte(n); break;                      // rc8
      case 4: value = byte(std::max(n, i)); break;         // ecl
      case 5: value = byte(std::min(n, i)); break;         // ecr
      case 6: value = byte((n & 1) * 2 + (i & 1)); break;  // rc16
    }
    r |= value << (8 * i);
  }
  return r;
}

void Words(Warp* w, const Instruction& in, uint32_t mask) {
  const uint64_t *a = w->row(in.a), *b = w->row(in.b), *c = w->row(in.c);
  uint64_t* d = w->row(in.d);
  ForLanes(mask, [&](int i) {
    const uint32_t x = static_cast<uint32_t>(a[i]), y = static_cast<uint32_t>(b[i]), z = static_cast<uint32_t>(c[i]);
    uint32_t r = 0;
    switch (in.op) {
      case Op::kPrmt: r = Permuted(x, y, z, in.mode); break;
      case Op::kShf: {
        const uint64_t both = uint64_t{y} << 32 | x;
        const uint32_t n = in.sat ? std::min(z, 32u) : z & 31;
        r = static_cast<uint32_t>(in.mode == 0 ? (both << n) >> 32 : both >> n);
        break;
      }
      case Op::kLop3:
        for (int bit = 0; bit < 32; ++bit) {
          const uint32_t index = (x >> bit & 1) << 2 | (y >> bit & 1) << 1 | (z >> bit & 1);
          r |= static_cast<uint32_t>(in.offset >> index & 1) << bit;
        }
        break;
      case Op::kDp4a: case Op::kDp2a: {
        int64_t sum = in.type == Type::kS32 || in.from == Type::kS32 ? static_cast<int32_t>(z) : static_cast<int64_t>(z);
        const bool two = in.op == Op::kDp2a;
        for (int k = 0; k < (two ? 2 : 4); ++k) {
          const uint32_t p = two ? x >> (16 * k) & 0xffff : x >> (8 * k) & 0xff;
          const uint32_t q = y >> (8 * (two ? k + 2 * (in.mode == 1) : k)) & 0xff;
          const int64_t left = in.type != Type::kS32 ? p : two ? static_cast<int16_t>(p) : static_cast<int8_t>(p);
          const int64_t right = in.from != Type::kS32 ? q : static_cast<int8_t>(q);
          sum += left * right;
        }
        r = static_cast<uint32_t>(sum);
        break;
      }
      case Op::kFns: {
        // The position of the offset-th set bit from `base`; forwards if the offset is positive.
        int offset = static_cast<int32_t>(z);
        r = ~0u;
        if (offset == 0) {
          if (x >> (y & 31) & 1) r = y & 31;
          break;
        }
        const int step = offset > 0 ? 1 : -1;
        for (int pos = static_cast<int>(y & 31); pos >= 0 && pos < 32; pos += step) {
          if (!(x >> pos & 1)) continue;
          offset -= step;
          if (offset == 0) {
            r = static_cast<uint32_t>(pos);
            break;
          }
        }
        break;
      }
      default: break;
    }
    d[i] = r;
  });
}

void Logical(Warp* w, const Instruction& in, uint32_t mask) {
  const uint64_t* a = w->row(in.a);
  const uint64_t* b = in.b >= 0 ? w->row(in.b) : a;
  const uint64_t* c = in.c >= 0 ? w->row(in.c) : a;
  uint64_t* d = w->row(in.d);
  switch (in.op) {
    case Op::kAnd: return ForLanes(mask, [&](int i) { d[i] = a[i] & b[i] & 1; });
    case Op::kOr: return ForLanes(mask, [&](int i) { d[i] = (a[i] | b[i]) & 1; });
    case Op::kXor: return ForLanes(mask, [&](int i) { d[i] = (a[i] ^ b[i]) & 1; });
    case Op::kNot: return ForLanes(mask, [&](int i) { d[i] = ~a[i] & 1; });
    case Op::kSelp: return ForLanes(mask, [&](int i) { d[i] = (c[i] & 1 ? a[i] : b[i]) & 1; });
    // A predicate's constant may be -1.
    default: return ForLanes(mask, [&](int i) { d[i] = a[i] & 1; });
  }
}

void TestProperty(Warp* w, const Instruction& in, uint32_t mask) {
  const uint64_t* a = w->row(in.a);
  uint64_t* d = w->row(in.d);
  ForLanes(mask, [&](int i) {
    const int kind = in.type == Type::kF64 ? std::fpclassify(Get<double>(a[i])) : std::fpclassify(Get<float>(a[i]));
    switch (in.mode) {
      case 0: d[i] = kind != FP_NAN && kind != FP_INFINITE; break;
      case 1: d[i] = kind == FP_INFINITE; break;
      case 2: d[i] = kind != FP_NAN; break;
      case 3: d[i] = kind == FP_NAN; break;
      case 4: d[i] = kind == FP_NORMAL; break;
      default: d[i] = kind == FP_SUBNORMAL; break;
    }
  });
}

}  // namespace

void Execution::Scalar(Warp* warp, const Instruction& in, uint32_t mask) {
  switch (in.op) {
    case Op::kSetp: return SetPredicate(warp, in, mask);
    case Op::kSet: return SetValue(warp, in, mask);
    case Op::kTestp: return TestProperty(warp, in, mask);
    case Op::kPrmt: case Op::kShf: case Op::kLop3: case Op::kDp4a: case Op::kDp2a: case Op::kFns:
      return Words(warp, in, mask);
    case Op::kClock:
      ForLanes(mask, [&](int i) { warp->row(in.d)[i] = warp_instructions_; });
      return;
    case Op::kPack: case Op::kUnpack: {
      const int32_t* list = function_.operands.data() + in.list;
      const int bits = 8 * BytesOf(in.type) / in.list_size;
      const uint64_t part = bits == 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1;
      ForLanes(mask, [&](int i) {
        if (in.op == Op::kUnpack) {
          const uint64_t whole = warp->row(in.a)[i];
          for (int k = 0; k < in.list_size; ++k) warp->row(list[k])[i] = whole >> (bits * k) & part;
          return;
        }
        uint64_t whole = 0;
        for (int k = 0; k < in.list_size; ++k) whole |= (warp->row(list[k])[i] & part) << (bits * k);
        warp->row(in.d)[i] = whole;
      });
      return;
    }
    case Op::kSlct: {
      const uint64_t *a = warp->row(in.a), *b = warp->row(in.b), *c = warp->row(in.c);
      uint64_t* d = warp->row(in.d);
      ForLanes(mask, [&](int i) {
        const bool first = in.from == Type::kF32 ? Get<float>(c[i]) >= 0 : static_cast<int32_t>(c[i]) >= 0;
        d[i] = first ? a[i] : b[i];
      });
      return;
    }
    case Op::kCvta: {
      const uint64_t window = in.space == Space::kShared || in.space == Space::kCluster ? kSharedWindow
                              : in.space == Space::kLocal ? kLocalWindow
                              : in.space == Space::kParam ? kParamWindow : 0;
      const uint64_t* a = warp->row(in.a);
      uint64_t* d = warp->row(in.d);
      ForLanes(mask, [&](int i) { d[i] = in.mode != 0 ? a[i] & ~(window != 0 ? kWindowMask : 0) : a[i] | window; });
      return;
    }
    case Op::kIsspacep: {
      const uint64_t* a = warp->row(in.a);
      ForLanes(mask, [&](int i) {
        const uint64_t window = a[i] & kWindowMask;
        const bool shared = window == kSharedWindow, local = window == kLocalWindow, param = window == kParamWindow;
        bool is = false;
        switch (in.space) {
          case Space::kShared: is = shared && (a[i] & 0xffffffff) >> kClusterShift == 0; break;
          case Space::kCluster: is = shared; break;
          case Space::kLocal: is = local; break;
          case Space::kParam: is = param; break;
          default: is = !shared && !local && !param; break;
        }
        warp->row(in.d)[i] = is;
      });
      return;
    }
    case Op::kMapa:
      ForLanes(mask, [&](int i) {
        const uint64_t address = warp->row(in.a)[i];
        const uint64_t offset = address & ((1u << kClusterShift) - 1);
        warp->row(in.d)[i] = (address & kWindowMask) | (warp->row(in.b)[i] + 1) << kClusterShift | offset;
      });
      return;
    case Op::kGetctarank:
      ForLanes(mask, [&](int i) {
        const uint32_t rank = static_cast<uint32_t>(warp->row(in.a)[i]) >> kClusterShift;
        warp->row(in.d)[i] = rank == 0 ? warp->block->rank : rank - 1;
      });
      return;
    default: break;
  }
  if (in.type == Type::kPred) return Logical(warp, in, mask);
  if (in.type == Type::kF32) return Float<float>(warp, in, mask);
  if (in.type == Type::kF64) return Float<double>(warp, in, mask);
  if (IsFloat(in.type)) return SmallFloat(warp, in, mask);
  WithInteger(in.type, [&](auto t) { Integer<decltype(t)>(warp, in, mask); });
}

}  // namespace outboard::ptx
