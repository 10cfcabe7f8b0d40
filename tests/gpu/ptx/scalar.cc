// Instructions of one lane: comparisons, selection, bits and bytes (with sums of their products,
// DP2A and DP4A), moves and addresses. Other arithmetic is in integers.cc and floats.cc.
#include "tests/gpu/ptx/scalar.h"

namespace outboard::ptx {
namespace {

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
  if (WithInteger(type, [&](auto t) {
        result = Compares(compare, Get<decltype(t)>(a), Get<decltype(t)>(b));
      }))
    return result;
  switch (type) {
    case Type::kF32: {
      float x = Get<float>(a), y = Get<float>(b);
      if (in.ftz) x = FlushDenormal(x), y = FlushDenormal(y);
      return Compares(compare, x, y);
    }
    case Type::kF64: return Compares(compare, Get<double>(a), Get<double>(b));
    case Type::kF16:
    case Type::kF16x2:
      return Compares(compare, HalfToFloat(static_cast<uint16_t>(a)),
                      HalfToFloat(static_cast<uint16_t>(b)));
    case Type::kBf16:
    case Type::kBf16x2:
      return Compares(compare, BfloatToFloat(static_cast<uint16_t>(a)),
                      BfloatToFloat(static_cast<uint16_t>(b)));
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
        ForLanes(mask, [&](int i) {
          d[i] = compare(static_cast<int32_t>(a[i]), static_cast<int32_t>(b[i]));
        });
      else
        ForLanes(mask, [&](int i) {
          d[i] = compare(static_cast<uint32_t>(a[i]), static_cast<uint32_t>(b[i]));
        });
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
      case Type::kF16:
      case Type::kF16x2: return 0x3c00;
      case Type::kBf16:
      case Type::kBf16x2: return 0x3f80;
      case Type::kU16:
      case Type::kS16: return 0xffff;
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
    const uint32_t x = static_cast<uint32_t>(a[i]), y = static_cast<uint32_t>(b[i]),
                   z = static_cast<uint32_t>(c[i]);
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
      case Op::kDp4a:
      case Op::kDp2a: {
        int64_t sum = in.type == Type::kS32 || in.from == Type::kS32 ? static_cast<int32_t>(z)
                                                                     : static_cast<int64_t>(z);
        const bool two = in.op == Op::kDp2a;
        for (int k = 0; k < (two ? 2 : 4); ++k) {
          const uint32_t p = two ? x >> (16 * k) & 0xffff : x >> (8 * k) & 0xff;
          const uint32_t q = y >> (8 * (two ? k + 2 * (in.mode == 1) : k)) & 0xff;
          const int64_t left = in.type != Type::kS32 ? p
                               : two                 ? static_cast<int16_t>(p)
                                                     : static_cast<int8_t>(p);
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
    const int kind = in.type == Type::kF64 ? std::fpclassify(Get<double>(a[i]))
                                           : std::fpclassify(Get<float>(a[i]));
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
    case Op::kPrmt:
    case Op::kShf:
    case Op::kLop3:
    case Op::kDp4a:
    case Op::kDp2a:
    case Op::kFns: return Words(warp, in, mask);
    case Op::kClock:  // a nanosecond an instruction, and what was slept
      ForLanes(mask, [&](int i) { warp->row(in.d)[i] = warp_instructions_ + slept_ns_; });
      return;
    case Op::kPack:
    case Op::kUnpack: {
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
        for (int k = 0; k < in.list_size; ++k)
          whole |= (warp->row(list[k])[i] & part) << (bits * k);
        warp->row(in.d)[i] = whole;
      });
      return;
    }
    case Op::kSlct: {
      const uint64_t *a = warp->row(in.a), *b = warp->row(in.b), *c = warp->row(in.c);
      uint64_t* d = warp->row(in.d);
      ForLanes(mask, [&](int i) {
        const bool first =
            in.from == Type::kF32 ? Get<float>(c[i]) >= 0 : static_cast<int32_t>(c[i]) >= 0;
        d[i] = first ? a[i] : b[i];
      });
      return;
    }
    case Op::kCvta: {
      const uint64_t window = in.space == Space::kShared || in.space == Space::kCluster
                                  ? kSharedWindow
                              : in.space == Space::kLocal ? kLocalWindow
                              : in.space == Space::kParam ? kParamWindow
                                                          : 0;
      const uint64_t* a = warp->row(in.a);
      uint64_t* d = warp->row(in.d);
      ForLanes(mask, [&](int i) {
        d[i] = in.mode != 0 ? a[i] & ~(window != 0 ? kWindowMask : 0) : a[i] | window;
      });
      return;
    }
    case Op::kIsspacep: {
      const uint64_t* a = warp->row(in.a);
      ForLanes(mask, [&](int i) {
        const uint64_t window = a[i] & kWindowMask;
        const bool shared = window == kSharedWindow, local = window == kLocalWindow,
                   param = window == kParamWindow;
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
        warp->row(in.d)[i] =
            (address & kWindowMask) | (warp->row(in.b)[i] + 1) << kClusterShift | offset;
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
  if (IsFloat(in.type)) return FloatInstruction(warp, in, mask);
  IntegerInstruction(warp, in, mask);
}

}  // namespace outboard::ptx
