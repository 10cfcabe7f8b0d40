// Integer arithmetic, bits and shifts.
#include "tests/gpu/ptx/scalar.h"

namespace outboard::ptx {
namespace {

template <class T>
void Integer(Warp* w, const Instruction& in, uint32_t mask) {
  using U = std::make_unsigned_t<T>;
  using W = Wider<T>;
  constexpr int kBits = 8 * sizeof(T);
  switch (in.op) {
    case Op::kAdd:
      if (in.sat) return Map2<T>(w, in, mask, [](T a, T b) { return Saturate<T>(W{a} + W{b}); });
      return Map2<T>(w, in, mask, [](T a, T b) {
        return static_cast<T>(static_cast<U>(a) + static_cast<U>(b));
      });
    case Op::kSub:
      if (in.sat) return Map2<T>(w, in, mask, [](T a, T b) { return Saturate<T>(W{a} - W{b}); });
      return Map2<T>(w, in, mask, [](T a, T b) {
        return static_cast<T>(static_cast<U>(a) - static_cast<U>(b));
      });
    case Op::kMul:
      switch (static_cast<Half>(in.mode)) {
        case Half::kLow: return Map2<T>(w, in, mask, [](T a, T b) { return Wrap<T>(W{a} * W{b}); });
        case Half::kHigh:
          return Map2<T>(w, in, mask, [](T a, T b) { return Wrap<T>((W{a} * W{b}) >> kBits); });
        case Half::kWide: {
          using D = std::conditional_t<sizeof(T) == 2,
                                       std::conditional_t<std::is_signed_v<T>, int32_t, uint32_t>,
                                       std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>>;
          return Map2<T>(w, in, mask, [](T a, T b) { return static_cast<D>(W{a} * W{b}); });
        }
      }
      return;
    case Op::kMad: {
      const auto half = static_cast<Half>(in.mode);
      if (half == Half::kLow)
        return Map3<T>(w, in, mask, [](T a, T b, T c) {
          return static_cast<T>(static_cast<U>(Wrap<T>(W{a} * W{b})) + static_cast<U>(c));
        });
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
    case Op::kMul24:
    case Op::kMad24: {
      const uint64_t *a = w->row(in.a), *b = w->row(in.b);
      const uint64_t* c = in.op == Op::kMad24 ? w->row(in.c) : nullptr;
      uint64_t* d = w->row(in.d);
      ForLanes(mask, [&](int i) {
        const auto cut = [](uint64_t x) -> int64_t {
          return std::is_signed_v<T> ? static_cast<int64_t>(x << 40) >> 40
                                     : static_cast<int64_t>(x & 0xffffff);
        };
        const int64_t product = cut(a[i]) * cut(b[i]);
        const int64_t part = in.mode == 1 ? product >> 16 : product;
        d[i] = static_cast<uint32_t>(part + (c != nullptr ? static_cast<int64_t>(c[i]) : 0));
      });
      return;
    }
    case Op::kSad:
      return Map3<T>(w, in, mask, [](T a, T b, T c) {
        return static_cast<T>(static_cast<U>(c) + (a > b ? static_cast<U>(a) - static_cast<U>(b)
                                                         : static_cast<U>(b) - static_cast<U>(a)));
      });
    // Division by zero gives machine-specific values in PTX; all ones is what devices give.
    case Op::kDiv:
      return Map2<T>(w, in, mask, [](T a, T b) {
        return b == 0 ? static_cast<T>(~U{0})
               : std::is_signed_v<T> && b == static_cast<T>(-1)
                   ? static_cast<T>(U{0} - static_cast<U>(a))
                   : static_cast<T>(a / b);
      });
    case Op::kRem:
      return Map2<T>(w, in, mask, [](T a, T b) {
        return b == 0                                           ? a
               : std::is_signed_v<T> && b == static_cast<T>(-1) ? T{0}
                                                                : static_cast<T>(a % b);
      });
    case Op::kAbs:
      return Map1<T>(w, in, mask,
                     [](T a) { return a < 0 ? static_cast<T>(U{0} - static_cast<U>(a)) : a; });
    case Op::kNeg:
      return Map1<T>(w, in, mask, [](T a) { return static_cast<T>(U{0} - static_cast<U>(a)); });
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
    case Op::kShl:
    case Op::kShr: {
      const uint64_t *a = w->row(in.a), *b = w->row(in.b);
      uint64_t* d = w->row(in.d);
      const bool left = in.op == Op::kShl;
      ForLanes(mask, [&](int i) {
        const uint32_t n = static_cast<uint32_t>(b[i]);
        const T value = Get<T>(a[i]);
        if (left)
          d[i] = Put<U>(n >= kBits ? U{0} : static_cast<U>(static_cast<U>(value) << n));
        else if (std::is_signed_v<T>)
          d[i] = Put<T>(static_cast<T>(value >> (n >= kBits ? kBits - 1 : n)));
        else
          d[i] = Put<T>(n >= kBits ? T{0} : static_cast<T>(value >> n));
      });
      return;
    }
    case Op::kPopc:
      return Map1<U>(w, in, mask, [](U a) { return static_cast<uint32_t>(std::popcount(a)); });
    case Op::kClz:
      return Map1<U>(w, in, mask, [](U a) { return static_cast<uint32_t>(std::countl_zero(a)); });
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
        if (n >= 32)
          d[i] = value;
        else if (n == 0)
          d[i] = 0;
        else if (std::is_signed_v<T>)
          d[i] = static_cast<uint32_t>(static_cast<int32_t>(value << (32 - n)) >> (32 - n));
        else
          d[i] = value & ((1u << n) - 1);
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
    case Op::kAddCarry:
    case Op::kSubCarry:
    case Op::kMadCarry: {
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

}  // namespace

void IntegerInstruction(Warp* warp, const Instruction& in, uint32_t mask) {
  WithInteger(in.type, [&](auto t) { Integer<decltype(t)>(warp, in, mask); });
}

}  // namespace outboard::ptx
