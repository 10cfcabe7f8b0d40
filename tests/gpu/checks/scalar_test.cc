// Instructions of one lane against arithmetic that shares no code with the machine: C++'s integers
// and floats, __int128, and for small formats a search among all values of the format.
#include "tests/gpu/checks/scalar_test.h"

namespace outboard::ptx {
namespace {

TEST(Integers, AddSubMulDiv) {
  Check2<I32>("add.s32", [](I32 a, I32 b) { return U32(a) + U32(b); });
  Check2<I32>("sub.s32", [](I32 a, I32 b) { return U32(a) - U32(b); });
  Check2<I32>("add.sat.s32",
              [](I32 a, I32 b) { return std::clamp<I64>(I64{a} + b, INT32_MIN, INT32_MAX); });
  Check2<I32>("sub.sat.s32",
              [](I32 a, I32 b) { return std::clamp<I64>(I64{a} - b, INT32_MIN, INT32_MAX); });
  Check2<uint16_t>("add.u16", [](int a, int b) { return a + b; });
  Check2<U64>("sub.u64", [](U64 a, U64 b) { return a - b; });
  Check2<I32>("mul.lo.s32", [](I32 a, I32 b) { return I64{a} * b; });
  Check2<I32>("mul.hi.s32", [](I32 a, I32 b) { return (I64{a} * b) >> 32; });
  Check2<U32>("mul.hi.u32", [](U32 a, U32 b) { return (U64{a} * b) >> 32; });
  Check2<U64>("mul.hi.u64", [](U64 a, U64 b) { return (U128{a} * b) >> 64; });
  Check2<I64>("mul.hi.s64", [](I64 a, I64 b) { return (I128{a} * b) >> 64; });
  Check2<I64>("mul.lo.s64", [](I64 a, I64 b) { return U64(a) * U64(b); });
  Check<I64, I32, I32, I32>("mul.wide.s32 $d, $a, $b;",
                            [](I32 a, I32 b, I32) { return I64{a} * b; });
  Check<U64, U32, U32, U64>("mad.wide.u32 $d, $a, $b, $c;",
                            [](U32 a, U32 b, U64 c) { return U64{a} * b + c; });
  Check3<I32>("mad.lo.s32", [](I32 a, I32 b, I32 c) { return U32(I64{a} * b) + U32(c); });
  Check3<U32>("mad.hi.u32", [](U32 a, U32 b, U32 c) { return U32((U64{a} * b) >> 32) + c; });
  Check3<U32>("sad.u32", [](U32 a, U32 b, U32 c) { return c + (a > b ? a - b : b - a); });
  const auto quotient = [](auto a, auto b) {
    return b == 0 ? decltype(a)(-1) : decltype(a)(I128{a} / I128{b});
  };
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
  Check<U64, U64, U64, U64>(
      "add.cc.u64 %d50, $a, $b;\naddc.u64 $d, $c, 0;",
      [](U64 a, U64 b, U64 c) { return c + static_cast<U64>((U128{a} + b) >> 64); });
  Check<U32, U32, U32, U32>("sub.cc.u32 %r50, $a, $b;\nsubc.u32 $d, $c, 0;",
                            [](U32 a, U32 b, U32 c) { return c - (a < b); });
}

TEST(Integers, BitsAndShifts) {
  Check2<U32>("and.b32", [](U32 a, U32 b) { return a & b; });
  Check2<U64>("xor.b64", [](U64 a, U64 b) { return a ^ b; });
  Check1<uint16_t>("not.b16", [](int a) { return ~a; });
  Check<U64, U64, U32, U32>("shl.b64 $d, $a, $b;",
                            [](U64 a, U32 b, U32) { return b > 63 ? 0 : a << b; });
  Check<I32, I32, U32, U32>("shr.s32 $d, $a, $b;",
                            [](I32 a, U32 b, U32) { return a >> std::min(b, 31u); });
  Check<U32, U32, U32, U32>("shr.u32 $d, $a, $b;",
                            [](U32 a, U32 b, U32) { return b > 31 ? 0 : a >> b; });
  Check<uint16_t, uint16_t, U32, U32>("shr.u16 $d, $a, $b;", [](uint16_t a, U32 b, U32) {
    return static_cast<uint16_t>(b > 15 ? 0 : a >> b);
  });
  Check1<U32>("popc.b32", [](U32 a) { return __builtin_popcount(a); });
  Check<U32, U64, U64, U64>("clz.b64 $d, $a;",
                            [](U64 a, U64, U64) { return a == 0 ? 64 : __builtin_clzll(a); });
  Check<U32, U32, U32, U32>("bfind.u32 $d, $a;",
                            [](U32 a, U32, U32) { return a == 0 ? ~0u : 31 - __builtin_clz(a); });
  Check<U32, I32, U32, U32>("bfind.s32 $d, $a;", [](I32 a, U32, U32) {
    const U32 x = a < 0 ? ~a : a;
    return x == 0 ? ~0u : 31 - __builtin_clz(x);
  });
  Check1<U32>("brev.b32", [](U32 a) {
    U32 r = 0;
    for (int i = 0; i < 32; ++i) r |= (a >> i & 1) << (31 - i);
    return r;
  });
  Check3<U32>("bfe.u32", [](U32 a, U32 b, U32 c) {
    U32 r = 0;
    for (U32 i = 0; i < std::min(c & 255, 32u); ++i)
      r |= ((b & 255) + i < 32 ? a >> ((b & 255) + i) & 1 : 0) << i;
    return r;
  });
  Check<I32, I32, U32, U32>("bfe.s32 $d, $a, $b, $c;", [](I32 a, U32 b, U32 c) {
    const U32 pos = b & 255, len = c & 255;
    const U32 sign = len == 0 ? 0 : static_cast<U32>(a) >> std::min(pos + len - 1, 31u) & 1;
    U32 r = 0;
    for (U32 i = 0; i < 32; ++i)
      r |= (i < len && pos + i < 32 ? static_cast<U32>(a) >> (pos + i) & 1 : sign) << i;
    return static_cast<I32>(r);
  });
  Check<U32, U32, U32, U32>("bfi.b32 $d, $a, $b, $c, 5;", [](U32 a, U32 b, U32 c) {
    U32 r = b;
    for (U32 i = 0; i < 5; ++i)
      if ((c & 255) + i < 32) r = (r & ~(1u << ((c & 255) + i))) | (a >> i & 1) << ((c & 255) + i);
    return r;
  });
  Check3<U32>("shf.l.wrap.b32",
              [](U32 a, U32 b, U32 c) { return ((U64{b} << 32 | a) << (c & 31)) >> 32; });
  Check3<U32>("shf.r.clamp.b32",
              [](U32 a, U32 b, U32 c) { return (U64{b} << 32 | a) >> std::min(c, 32u); });
  Check<U32, U32, U32, U32>("lop3.b32 $d, $a, $b, $c, 0xe8;",
                            [](U32 a, U32 b, U32 c) { return (a & b) | (a & c) | (b & c); });
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
    for (int i = 0; i < 4; ++i)
      r += static_cast<U32>(static_cast<int8_t>(a >> (8 * i)) * static_cast<int8_t>(b >> (8 * i)));
    return static_cast<I32>(r);
  });
  Check3<U32>("dp4a.u32.u32", [](U32 a, U32 b, U32 c) {
    for (int i = 0; i < 4; ++i) c += (a >> (8 * i) & 255) * (b >> (8 * i) & 255);
    return c;
  });
  Check<U64, U32, U32, U32>("mov.b64 $d, {$a, $b};",
                            [](U32 a, U32 b, U32) { return U64{b} << 32 | a; });
  Check<U32, U64, U32, U32>("mov.b64 {%r50, $d}, $a;",
                            [](U64 a, U32, U32) { return static_cast<U32>(a >> 32); });
}

TEST(Predicates, CompareAndSelect) {
  const auto compare = [](const std::string& instruction, auto f) {
    using T = decltype(f)::Type;
    Check<U32, T, T, U32>(
        absl::StrCat("setp.ne.u32 %p2, $c, 0;\n", instruction, "\nselp.u32 $d, 1, 0, %p1;"),
        [f](T a, T b, U32 c) { return f.Of(a, b, c != 0) ? 1u : 0u; });
  };
#define OUTBOARD_COMPARE(text, type, expression)                    \
  {                                                                 \
    struct Reference {                                              \
      using Type = type;                                            \
      static bool Of(type a, type b, bool c) { return expression; } \
    };                                                              \
    compare(text, Reference());                                     \
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
  Check<U32, float, float, U32>("set.gt.u32.f32 $d, $a, $b;",
                                [](float a, float b, U32) { return a > b ? ~0u : 0u; });
  Check<U32, U32, U32, I32>("slct.u32.s32 $d, $a, $b, $c;",
                            [](U32 a, U32 b, I32 c) { return c >= 0 ? a : b; });
}

TEST(Floats, ArithmeticInEveryRounding) {
  const std::pair<const char*, int> modes[] = {
      {"rn", FE_TONEAREST}, {"rz", FE_TOWARDZERO}, {"rm", FE_DOWNWARD}, {"rp", FE_UPWARD}};
  for (const auto& [name, mode] : modes) {
    const int m = mode;
    Check2<float>(absl::StrCat("add.", name, ".f32"), [m](float a, float b) {
      volatile float x = a, y = b;
      return InMode<float>(m, [&] { return x + y; });
    });
    Check2<float>(absl::StrCat("mul.", name, ".f32"), [m](float a, float b) {
      volatile float x = a, y = b;
      return InMode<float>(m, [&] { return x * y; });
    });
    Check2<float>(absl::StrCat("div.", name, ".f32"), [m](float a, float b) {
      volatile float x = a, y = b;
      return InMode<float>(m, [&] { return x / y; });
    });
    Check2<double>(absl::StrCat("sub.", name, ".f64"), [m](double a, double b) {
      volatile double x = a, y = b;
      return InMode<double>(m, [&] { return x - y; });
    });
    Check2<double>(absl::StrCat("div.", name, ".f64"), [m](double a, double b) {
      volatile double x = a, y = b;
      return InMode<double>(m, [&] { return x / y; });
    });
    // A sum of a product in 80 bits, rounded to odd, is exact enough for float.
    Check3<float>(absl::StrCat("fma.", name, ".f32"), [m](float a, float b, float c) {
      volatile float x = a, y = b, z = c;
      return InMode<float>(m, [&] { return std::fma(float{x}, float{y}, float{z}); });
    });
    Check1<float>(absl::StrCat("sqrt.", name, ".f32"), [m](float a) {
      volatile float x = a;
      return InMode<float>(m, [&] { return std::sqrt(float{x}); });
    });
    Check1<float>(absl::StrCat("rcp.", name, ".f32"), [m](float a) {
      volatile float x = a;
      return InMode<float>(m, [&] { return 1 / x; });
    });
  }
  Check3<double>("fma.rn.f64", [](double a, double b, double c) { return std::fma(a, b, c); });
  Check1<double>("sqrt.rn.f64", [](double a) { return std::sqrt(a); });
}

TEST(Floats, ModifiersOfFloats) {
  const auto flushed = [](float x) {
    return x != 0 && std::fabs(x) < std::numeric_limits<float>::min() ? std::copysign(0.0f, x) : x;
  };
  Check2<float>("add.ftz.f32", [&](float a, float b) { return flushed(flushed(a) + flushed(b)); });
  Check2<float>("mul.rn.ftz.f32",
                [&](float a, float b) { return flushed(flushed(a) * flushed(b)); });
  Check2<float>("add.sat.f32", [](float a, float b) {
    const float r = a + b;
    return r > 0 ? std::min(r, 1.0f) : 0;
  });
  Check1<float>("abs.f32", [](float a) { return std::fabs(a); });
  Check1<float>("neg.f32", [](float a) { return -a; });
  Check2<float>("max.f32", [](float a, float b) {
    return std::isnan(a)   ? b
           : std::isnan(b) ? a
           : a == b        ? (std::signbit(a) ? b : a)
                           : std::max(a, b);
  });
  Check2<float>("min.NaN.f32", [](float a, float b) {
    return std::isunordered(a, b) ? float{NAN}
           : a == b               ? (std::signbit(a) ? a : b)
                                  : std::min(a, b);
  });
  Check2<double>("min.f64", [](double a, double b) {
    return std::isnan(a)   ? b
           : std::isnan(b) ? a
           : a == b        ? (std::signbit(a) ? a : b)
                           : std::min(a, b);
  });
  Check2<float>("copysign.f32", [](float a, float b) { return std::copysign(b, a); });
  Check<U32, float, float, float>(
      "testp.subnormal.f32 %p1, $a;\nselp.u32 $d, 1, 0, %p1;",
      [](float a, float, float) { return U32{std::fpclassify(a) == FP_SUBNORMAL}; });
}

// PTX gives bounds for these; the machine keeps to half a step of float.
TEST(Floats, ApproximateFunctions_AreWithinTheirBounds) {
  MachineOptions options;
  double most = 0;
  const auto near = [&](const char* mnemonic, double (*f)(double), double from, double to,
                        double bound) {
    std::vector<float> values;
    for (int i = 0; i < kInputs; ++i)
      values.push_back(static_cast<float>(from + (to - from) * i / kInputs));
    Bench bench(KernelText(
        {".u64"}, absl::StrCat("ld.param.u64 %d1, [p0];\nmov.u32 %r1, %tid.x;\nmul.wide.u32 %d2, "
                               "%r1, 4;\nadd.s64 %d3, %d1, %d2;\nld.global.f32 %f1, [%d3];\n",
                               mnemonic, " %f2, %f1;\nst.global.f32 [%d3], %f2;\n")),
                options);
    bench.Argument(bench.Put(values));
    ASSERT_TRUE(bench.Launch(1, kInputs).ok());
    const std::vector<float> results = bench.Take<float>(DeviceMemory::kBase, kInputs);
    for (int i = 0; i < kInputs; ++i) {
      const double want = f(values[i]);
      ASSERT_NEAR(results[i], want, bound * std::max(1e-30, std::fabs(want)))
          << mnemonic << " of " << values[i];
      most = std::max(most, std::fabs(results[i] / want - 1));
    }
  };
  const auto power = [](double x) { return std::exp2(x); };
  near("ex2.approx.ftz.f32", power, -20, 20, 1.0 / (1 << 24));
  options.inexact = 1;
  near("ex2.approx.ftz.f32", power, -20, 20, 1.0 / (1 << 22));
  EXPECT_GT(most, 0.9 / (1 << 22));
  options = {};
  near("lg2.approx.f32", [](double x) { return std::log2(x); }, 2.5, 1000, 1.0 / (1 << 22));
  near("sin.approx.f32", [](double x) { return std::sin(x); }, 0.1, 3, 1.0 / (1 << 20));
  near("cos.approx.f32", [](double x) { return std::cos(x); }, 0, 1.5, 1.0 / (1 << 20));
  near("rsqrt.approx.f32", [](double x) { return 1 / std::sqrt(x); }, 0.1, 100, 1.0 / (1 << 22));
  near("rcp.approx.ftz.f32", [](double x) { return 1 / x; }, 0.1, 100, 1.0 / (1 << 23));
  near("sqrt.approx.f32", [](double x) { return std::sqrt(x); }, 0.1, 100, 1.0 / (1 << 23));
  near("tanh.approx.f32", [](double x) { return std::tanh(x); }, 0.1, 5, 1.0 / (1 << 10));
}

}  // namespace

}  // namespace outboard::ptx
