// Small floats, conversions and the errors of the parser.
#include "tests/gpu/checks/scalar_test.h"

namespace outboard::ptx {
namespace {

TEST(SmallFloats, AreRoundedOnce) {
  for (const auto& [name, mantissa] :
       {std::pair{"f16", kHalfBits}, std::pair{"bf16", kBfloatBits}}) {
    const int m = mantissa;
    const auto v = [m](Bits16 x) { return static_cast<long double>(ValueOf(x.bits, m)); };
    Check<Bits16, Bits16, Bits16, Bits16>(
        absl::StrCat("add.rn.", name, " $d, $a, $b;"),
        [=](Bits16 a, Bits16 b, Bits16) { return Bits16{Nearest(v(a) + v(b), m)}; });
    Check<Bits16, Bits16, Bits16, Bits16>(
        absl::StrCat("sub.rn.", name, " $d, $a, $b;"),
        [=](Bits16 a, Bits16 b, Bits16) { return Bits16{Nearest(v(a) - v(b), m)}; });
    Check<Bits16, Bits16, Bits16, Bits16>(
        absl::StrCat("mul.rn.", name, " $d, $a, $b;"),
        [=](Bits16 a, Bits16 b, Bits16) { return Bits16{Nearest(v(a) * v(b), m)}; });
    Check<Bits16, Bits16, Bits16, Bits16>(
        absl::StrCat("max.", name, " $d, $a, $b;"), [=](Bits16 a, Bits16 b, Bits16) {
          if (std::isnan(v(a)) && std::isnan(v(b))) return Bits16{0x7fff};
          if (std::isnan(v(a))) return b;
          if (std::isnan(v(b))) return a;
          return v(a) == v(b) ? (std::signbit(v(a)) ? b : a) : v(a) > v(b) ? a : b;
        });
    Check<Bits16, float, float, float>(
        absl::StrCat("cvt.rn.", name, ".f32 $d, $a;"),
        [=](float a, float, float) { return Bits16{Nearest(a, m)}; });
    Check<Bits16, double, double, double>(
        absl::StrCat("cvt.rn.", name, ".f64 $d, $a;"),
        [=](double a, double, double) { return Bits16{Nearest(a, m)}; });
    Check<Bits16, I64, I64, I64>(absl::StrCat("cvt.rn.", name, ".s64 $d, $a;"),
                                 [=](I64 a, I64, I64) { return Bits16{Nearest(a, m)}; });
    Check<float, Bits16, Bits16, Bits16>(
        absl::StrCat("cvt.f32.", name, " $d, $a;"),
        [=](Bits16 a, Bits16, Bits16) { return static_cast<float>(ValueOf(a.bits, m)); });
    Check<U32, U32, U32, U32>(
        absl::StrCat("mul.rn.", name, "x2 $d, $a, $b;"), [=](U32 a, U32 b, U32) {
          const U32 low = Nearest(v({uint16_t(a)}) * v({uint16_t(b)}), m),
                    high = Nearest(v({uint16_t(a >> 16)}) * v({uint16_t(b >> 16)}), m);
          return high << 16 | low;
        });
    Check<U32, float, float, U32>(
        absl::StrCat("cvt.rn.", name, "x2.f32 $d, $a, $b;"),
        [=](float a, float b, U32) { return U32{Nearest(a, m)} << 16 | Nearest(b, m); });
  }
  // f16's products and sums fit the 64 bits of long double's mantissa; bf16's exponents are too far
  // apart for that.
  const auto v = [](Bits16 x) { return static_cast<long double>(ValueOf(x.bits, kHalfBits)); };
  Check<Bits16, Bits16, Bits16, Bits16>(
      "fma.rn.f16 $d, $a, $b, $c;", [=](Bits16 a, Bits16 b, Bits16 c) {
        const long double product = v(a) * v(b), sum = product + v(c);
        // Beyond 64 bits apart the smaller one only breaks ties, which random inputs do not have.
        return Bits16{Nearest(sum, kHalfBits)};
      });
}

TEST(Conversions, BetweenIntegersAndFloats) {
  Check<I32, I64, I64, I64>("cvt.s32.s64 $d, $a;",
                            [](I64 a, I64, I64) { return static_cast<I32>(a); });
  Check<I64, I32, I32, I32>("cvt.s64.s32 $d, $a;", [](I32 a, I32, I32) { return I64{a}; });
  Check<U64, U32, U32, U32>("cvt.u64.u32 $d, $a;", [](U32 a, U32, U32) { return U64{a}; });
  Check<I32, I32, I32, I32>("cvt.s32.s8 $d, $a;",
                            [](I32 a, I32, I32) { return I32{static_cast<int8_t>(a)}; });
  Check<U32, I32, I32, I32>("cvt.sat.u8.s32 $d, $a;",
                            [](I32 a, I32, I32) { return U32(std::clamp(a, 0, 255)); });
  Check<I32, I64, I64, I64>("cvt.sat.s32.s64 $d, $a;", [](I64 a, I64, I64) {
    return I32(std::clamp<I64>(a, INT32_MIN, INT32_MAX));
  });
  Check<I32, U64, U64, U64>("cvt.sat.s32.u64 $d, $a;",
                            [](U64 a, U64, U64) { return I32(std::min<U64>(a, INT32_MAX)); });
  const auto saturated = [](double whole, double low, double high) {
    return std::isnan(whole) ? 0 : std::clamp(whole, low, high);
  };
  Check<I32, float, float, float>("cvt.rzi.s32.f32 $d, $a;", [&](float a, float, float) {
    return I32(saturated(std::trunc(a), INT32_MIN, INT32_MAX));
  });
  Check<I32, float, float, float>("cvt.rni.s32.f32 $d, $a;", [&](float a, float, float) {
    return I32(saturated(std::nearbyint(a), INT32_MIN, INT32_MAX));
  });
  Check<I32, double, double, double>("cvt.rmi.s32.f64 $d, $a;", [&](double a, double, double) {
    return I32(saturated(std::floor(a), INT32_MIN, INT32_MAX));
  });
  Check<U32, float, float, float>("cvt.rpi.u32.f32 $d, $a;", [&](float a, float, float) {
    return U32(saturated(std::ceil(a), 0, UINT32_MAX));
  });
  Check<I64, double, double, double>("cvt.rzi.s64.f64 $d, $a;", [](double a, double, double) {
    if (std::isnan(a)) return I64{0};
    return a >= 0x1p63 ? INT64_MAX : a < -0x1p63 ? INT64_MIN : I64(a);
  });
  Check<float, I64, I64, I64>("cvt.rn.f32.s64 $d, $a;",
                              [](I64 a, I64, I64) { return static_cast<float>(a); });
  Check<float, U64, U64, U64>("cvt.rz.f32.u64 $d, $a;", [](U64 a, U64, U64) {
    volatile U64 x = a;
    return InMode<float>(FE_TOWARDZERO, [&] { return static_cast<float>(U64{x}); });
  });
  Check<double, U32, U32, U32>("cvt.rn.f64.u32 $d, $a;",
                               [](U32 a, U32, U32) { return double{1} * a; });
  Check<float, double, double, double>(
      "cvt.rn.f32.f64 $d, $a;", [](double a, double, double) { return static_cast<float>(a); });
  Check<double, float, float, float>("cvt.f64.f32 $d, $a;",
                                     [](float a, float, float) { return double{a}; });
  Check<float, float, float, float>("cvt.rzi.f32.f32 $d, $a;",
                                    [](float a, float, float) { return std::trunc(a); });
  Check<float, float, float, float>("cvt.sat.f32.f32 $d, $a;", [](float a, float, float) {
    return a > 0 ? std::min(a, 1.0f) : 0;
  });
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
    Check<U32, U32, U32, U32>(
        absl::StrCat("cvt.u16.u32 %h1, $a;\ncvt.rn.f16x2.", type,
                     " %r50, %h1;\nmov.b32 {%h2, %h3}, %r50;\n",
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
  const auto error = [](const std::string& body) {
    return std::string(Parse(KernelText({".u64"}, body)).status().message());
  };
  EXPECT_EQ(error("frobnicate.b32 %r1, %r2;"), "PTX line 14: frobnicate.b32: unknown instruction");
  EXPECT_EQ(error("\nadd.odd.s32 %r1, %r2, %r3;"),
            "PTX line 15: add.odd.s32: unknown modifier '.odd'");
  EXPECT_EQ(error("add.s32 %r1, %r2, %r999;"), "PTX line 14: add.s32: unknown operand '%r999'");
  EXPECT_EQ(error("add.s32 %r1, %r2;"), "PTX line 14: add.s32: has 2 operands");
  EXPECT_EQ(error("bra NOWHERE;"), "PTX line 14: no label 'NOWHERE'");
  EXPECT_EQ(
      error("wgmma.mma_async.sync.aligned.m64n7k16.f32.bf16.bf16 {%f1}, %d1, %d2, 1, 1, 1, 0, 0;"),
      "PTX line 14: wgmma.mma_async.sync.aligned.m64n7k16.f32.bf16.bf16: unknown shape");
  // 8-bit operands lie along k: nothing says otherwise.
  const auto small = [&](const std::string& after) {
    return error(
        absl::StrCat("wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e5m2 {%f1, %f2, %f3, %f4}, "
                     "%d1, %d2, 1, 1, 1",
                     after, ";"));
  };
  EXPECT_NE(small(", 0, 0").find("too many operands"), std::string::npos);
  EXPECT_EQ(small("").find("too many operands"), std::string::npos);
  EXPECT_FALSE(Parse(".version 8.0\n.target sm_80\n.func f() { ret; }").ok());
}

}  // namespace
}  // namespace outboard::ptx
