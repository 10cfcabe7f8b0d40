// What the proofs of our divisions leave to be tried (docs/decisions/202-division.md, of bf16 and
// f16 216-epilogues.md), for all divisors, in arithmetic on the host. Its text:
// float_division_test.cc.
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>

#include "compiler/ir/dtype.h"
#include "tests/compiler/hard_dividends.h"

namespace outboard::test {
namespace {

float Refined(float b, float by_unit) {
  return std::fma(std::fma(-b, by_unit, 1.0f), by_unit, by_unit);
}
bool IsNear(float b, float y) { return std::fabs(std::fma(-b, y, 1.0f)) < 0x1p-24f; }
float Quotient(float a, float b, float y) {
  const float q = a * y;
  return std::fma(std::fma(-b, q, a), y, q);
}
// Rounded once: f64 has more than twice the digits of f32.
float Exact(double a, double b) { return static_cast<float>(a / b); }

// Of the unit's results within PTX's bound, one unit in the last place, all are refined to the
// correctly rounded reciprocal, but one of the divisor whose digits are all ones. What is refined
// passes the check, but that one.
TEST(FloatDivisionProof, ReciprocalsOfAllDivisors_AreRefined) {
  int64_t refined = 0, wrong = 0;
  for (int64_t digits = kDigitsLeast; digits < kDigitsEnd; ++digits) {
    const auto b = static_cast<float>(digits);
    const double exact = 1 / static_cast<double>(b);
    const auto nearest = static_cast<float>(exact);
    const double unit = std::ldexp(1.0, std::ilogb(exact) - 23);
    for (const float by_unit :
         {nearest, std::nextafter(nearest, 0.0f), std::nextafter(nearest, 1.0f)}) {
      if (std::fabs(by_unit - exact) > unit) continue;
      ++refined;
      const float y = Refined(b, by_unit);
      if (y == nearest && IsNear(b, y)) continue;
      ++wrong;
      EXPECT_EQ(digits, kDigitsEnd - 1);
      EXPECT_FALSE(IsNear(b, y)) << digits;
    }
  }
  EXPECT_EQ(wrong, 1);
  EXPECT_GT(refined, 2 * kDigitsLeast);
}

// The hardest quotients of all divisors, by every y that passes the check.
TEST(FloatDivisionProof, HardestQuotientsOfAllDivisors_AreRoundedCorrectly) {
  constexpr int64_t kFar = 5;  // the proof asks for 4
  int64_t quotients = 0, wrong = 0, reciprocals = 0;
  for (int64_t digits = kDigitsLeast; digits < kDigitsEnd; ++digits) {
    const auto b = static_cast<float>(digits);
    const auto nearest = static_cast<float>(1 / static_cast<double>(b));
    std::array<float, 3> near;
    int count = 0;
    for (const float y : {nearest, std::nextafter(nearest, 0.0f), std::nextafter(nearest, 1.0f)})
      if (IsNear(b, y)) near[static_cast<size_t>(count++)] = y;
    ASSERT_GE(count, 1) << digits;
    reciprocals += count;
    // No number further away passes.
    ASSERT_FALSE(IsNear(b, std::nextafter(std::nextafter(nearest, 0.0f), 0.0f))) << digits;
    ASSERT_FALSE(IsNear(b, std::nextafter(std::nextafter(nearest, 1.0f), 1.0f))) << digits;
    HardDividends(digits, kFar, [&](int64_t dividend) {
      const auto a = static_cast<float>(dividend);
      const float exact = Exact(a, b);
      for (int i = 0; i < count; ++i) {
        ++quotients;
        wrong += Quotient(a, b, near[static_cast<size_t>(i)]) != exact;
      }
    });
  }
  std::printf("%lld quotients by %lld reciprocals\n", static_cast<long long>(quotients),
              static_cast<long long>(reciprocals));
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(quotients, kDigitsLeast);
  EXPECT_GT(reciprocals, kDigitsLeast);  // of some divisors there are two
}

// All dividends of divisors at the ends of what the proof distinguishes: the smallest and largest
// digits, and those where 1 / b or b * b crosses a power of two.
TEST(FloatDivisionProof, AllQuotientsOfDivisorsAtTheEnds_AreRoundedCorrectly) {
  for (const int64_t digits : {0x800000, 0x800001, 0x800003, 0xb504f3, 0xb504f4, 0xaaaaab, 0xc00000,
                               0xfffffd, 0xfffffe, 0xffffff}) {
    const auto b = static_cast<float>(digits);
    const auto y = static_cast<float>(1 / static_cast<double>(b));
    ASSERT_TRUE(IsNear(b, y));
    int64_t wrong = 0;
    for (int64_t dividend = kDigitsLeast; dividend < kDigitsEnd; ++dividend) {
      const auto a = static_cast<float>(dividend);
      wrong += Quotient(a, b, y) != Exact(a, b);
    }
    EXPECT_EQ(wrong, 0) << digits;
  }
  // The one reciprocal that does not pass the check would be one too few.
  const auto ones = static_cast<float>(kDigitsEnd - 1);
  const float low = Refined(ones, 0x1p-24f);
  EXPECT_EQ(low, 0x1p-24f);
  EXPECT_NE(Quotient(1, ones, low), Exact(1, ones));
}

// Of bf16, as DivideSmall has it: all dividends, by divisors of all digits with exponents next to
// all of its limits, by reciprocals up to 2^-22 away, which is twice as far as PTX allows.
float QuotientOfBFloats(float a, float b, float y, float scale, float steps) {
  const float q = std::fma(a * scale, y, steps);
  return std::bit_cast<float>(std::bit_cast<uint32_t>(q) & ~15u);
}
float BFloat(uint32_t bits) { return std::bit_cast<float>(bits << 16); }

TEST(FloatDivisionProof, QuotientsOfBFloats_AreRoundedCorrectly) {
  constexpr uint32_t kNumbers = 0x7f80, kDigits = 128;  // that are finite, and of an exponent
  int64_t quotients = 0, wrong = 0, wrong_without = 0, ties = 0;
  for (const uint32_t exponent : {0u, 1u, 62u, 63u, 64u, 127u, 253u, 254u})
    for (uint32_t digits = 0; digits < kDigits; ++digits) {
      const float b = BFloat(exponent * kDigits + digits);
      if (b == 0) continue;
      const float scale = b < 0x1p-64f ? 0x1p8f : 0x1p-2f;
      const double inverse = 1 / static_cast<double>(b * scale);
      ASSERT_TRUE(std::isnormal(b * scale) && std::isnormal(static_cast<float>(inverse)));
      const auto nearest = static_cast<float>(inverse);
      float y = std::nextafter(std::nextafter(nearest, 0.0f), 0.0f);
      for (int k = 0; k < 5; ++k, y = std::nextafter(y, INFINITY)) {
        if (k % 2 != 0 || std::fabs(y - inverse) > inverse * 0x1p-22) continue;
        for (uint32_t a = 1; a < kNumbers; ++a) {
          const double exact = static_cast<double>(BFloat(a)) / static_cast<double>(b);
          const double want = RoundTo(DType::kBF16, exact);
          const float q = QuotientOfBFloats(BFloat(a), b, y, scale, 0x1p-146f),
                      other = QuotientOfBFloats(BFloat(a), b, y, scale, 0);
          ++quotients;
          wrong_without += RoundTo(DType::kBF16, static_cast<double>(other)) != want;
          ties += exact < 0x1p-126 && std::fmod(exact, 0x1p-133) == 0x1p-134;
          wrong += RoundTo(DType::kBF16, static_cast<double>(q)) != want;
        }
      }
    }
  std::printf("%lld quotients of bf16, %lld in the middle\n", static_cast<long long>(quotients),
              static_cast<long long>(ties));
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(wrong_without, 0);  // the steps
  EXPECT_GT(ties, 1000);
}

// Of f16, all digits. Exponents matter only where a quotient is subnormal.
TEST(FloatDivisionProof, QuotientsOfHalves_AreRoundedCorrectly) {
  constexpr int kLeast = 1024, kEnd = 2048;
  int64_t wrong = 0;
  for (int digits = kLeast; digits < kEnd; ++digits) {
    const auto b = static_cast<float>(digits);
    const auto nearest = static_cast<float>(1 / static_cast<double>(b));
    for (const float y : {nearest, std::nextafter(nearest, 0.0f), std::nextafter(nearest, 1.0f)})
      for (int dividend = kLeast; dividend < kEnd; ++dividend)
        for (const float a :
             {static_cast<float>(dividend), static_cast<float>(dividend) * 0x1p-17f}) {
          const double want = RoundTo(DType::kF16, static_cast<double>(a) / b);
          wrong += RoundTo(DType::kF16, static_cast<double>(Quotient(a, b, y))) != want;
        }
  }
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace outboard::test
