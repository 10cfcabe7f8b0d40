// Element types: every bit pattern of the small floats, and their rounding against a search through
// all values.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "compiler/ir/dtype.h"

namespace outboard {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

double Load(DType dtype, uint32_t bits) { return LoadFloat(dtype, &bits); }
uint32_t Store(DType dtype, double value) {
  uint32_t bits = 0;
  StoreFloat(dtype, value, &bits);
  return bits;
}

class SmallFloats : public testing::TestWithParam<DType> {
 protected:
  const DType dtype = GetParam();
  const uint32_t patterns = 1u << (8 * ByteWidth(dtype));

  // Every finite value of at least +0 with its bits, ascending: positive floats sort as their bits
  // do.
  std::vector<double> Magnitudes() {
    std::vector<double> values;
    for (uint32_t bits = 0; bits < patterns / 2; ++bits)
      if (std::isfinite(Load(dtype, bits))) values.push_back(Load(dtype, bits));
    return values;
  }
};

TEST_P(SmallFloats, EveryPatternGoesRound) {
  int nans = 0;
  for (uint32_t bits = 0; bits < patterns; ++bits) {
    const double value = Load(dtype, bits);
    if (std::isnan(value)) {
      ++nans;
      EXPECT_TRUE(std::isnan(Load(dtype, Store(dtype, value))));
      continue;
    }
    ASSERT_EQ(Store(dtype, value), bits) << value;
    ASSERT_EQ(std::bit_cast<uint64_t>(RoundTo(dtype, value)), std::bit_cast<uint64_t>(value))
        << bits;
  }
  EXPECT_GT(nans, 0);
}

TEST_P(SmallFloats, RoundsToTheNearestTiesToEven) {
  const std::vector<double> values = Magnitudes();
  ASSERT_TRUE(std::is_sorted(values.begin(), values.end()));
  const double last = values.back(), past = last + (last - values[values.size() - 2]);
  // Bits of values[i] are i, so an even index is an even mantissa. Past the end is infinity, where
  // there is one.
  const auto nearest = [&](double x) {
    const bool saturates = dtype == DType::kF8E4M3;
    if (x >= last) return saturates || x - last < past - x ? last : kInf;
    const auto above = std::upper_bound(values.begin(), values.end(), x) - values.begin();
    const double low = values[above - 1], high = values[above];
    if (x - low != high - x) return x - low < high - x ? low : high;
    return (above - 1) % 2 == 0 ? low : high;
  };
  const auto check = [&](double x) {
    ASSERT_EQ(RoundTo(dtype, x), nearest(x)) << x;
    ASSERT_EQ(RoundTo(dtype, -x), -nearest(x)) << x;
    ASSERT_EQ(Load(dtype, Store(dtype, x)), nearest(x)) << x;
  };
  for (size_t i = 0; i + 1 < values.size(); ++i) {
    const double middle = values[i] + (values[i + 1] - values[i]) / 2;
    check(middle);
    check(std::nextafter(middle, kInf));
    check(std::nextafter(middle, 0));
  }
  for (const double x :
       {last, std::nextafter(last, kInf), last + (past - last) / 2, past, 2 * past, 1e300, kInf,
        std::nextafter(last + (past - last) / 2, 0), 5e-324, values[1] / 2, values[1] / 4})
    check(x);
  std::mt19937_64 random(1);
  for (int i = 0; i < 20'000; ++i)
    check(std::ldexp(std::uniform_real_distribution<>(1, 2)(random),
                     std::uniform_int_distribution<>(-150, 150)(random)));
}

TEST_P(SmallFloats, ZerosKeepTheirSign) {
  EXPECT_EQ(Store(dtype, -0.0), patterns / 2);
  EXPECT_EQ(Store(dtype, 0.0), 0u);
  EXPECT_TRUE(std::signbit(RoundTo(dtype, -1e-300)));
}

INSTANTIATE_TEST_SUITE_P(DType, SmallFloats,
                         testing::Values(DType::kF8E4M3, DType::kF8E5M2, DType::kF16, DType::kBF16),
                         [](const auto& info) { return std::string(Name(info.param)); });

// From the formats' published tables, so that the tests above cannot agree with a wrong format.
TEST(DTypeTest, KnownPatterns) {
  const struct {
    DType dtype;
    uint32_t bits;
    double value;
  } known[] = {
      {DType::kF8E4M3, 0x38, 1},         {DType::kF8E4M3, 0x7e, 448},
      {DType::kF8E4M3, 0x01, 0x1p-9},    {DType::kF8E4M3, 0x08, 0x1p-6},
      {DType::kF8E4M3, 0xc0, -2},        {DType::kF8E5M2, 0x3c, 1},
      {DType::kF8E5M2, 0x7b, 57344},     {DType::kF8E5M2, 0x7c, kInf},
      {DType::kF8E5M2, 0x01, 0x1p-16},   {DType::kF16, 0x3c00, 1},
      {DType::kF16, 0x7bff, 65504},      {DType::kF16, 0x0001, 0x1p-24},
      {DType::kF16, 0x3555, 0x1.554p-2}, {DType::kF16, 0xfc00, -kInf},
      {DType::kBF16, 0x3f80, 1},         {DType::kBF16, 0x7f7f, 0x1.fep127},
      {DType::kBF16, 0x0001, 0x1p-133},  {DType::kBF16, 0xc049, -3.140625},
  };
  for (const auto& k : known) {
    EXPECT_EQ(Load(k.dtype, k.bits), k.value) << Name(k.dtype) << " " << k.bits;
    EXPECT_EQ(Store(k.dtype, k.value), k.bits) << Name(k.dtype) << " " << k.value;
  }
  EXPECT_TRUE(std::isnan(Load(DType::kF8E4M3, 0x7f)));
  EXPECT_TRUE(std::isnan(Load(DType::kF8E4M3, 0xff)));
  EXPECT_TRUE(std::isnan(Load(DType::kF8E5M2, 0x7d)));
}

TEST(DTypeTest, WideFloats) {
  EXPECT_EQ(RoundTo(DType::kF32, 0.1), static_cast<double>(0.1f));
  EXPECT_EQ(RoundTo(DType::kF32, 1e300), kInf);
  EXPECT_EQ(RoundTo(DType::kF64, 0.1), 0.1);
  double d;
  StoreFloat(DType::kF64, 0.1, &d);
  EXPECT_EQ(LoadFloat(DType::kF64, &d), 0.1);
  for (int i = static_cast<int>(DType::kF8E4M3); i < kDTypeCount; ++i) {
    const double nan = RoundTo(static_cast<DType>(i), std::bit_cast<double>(0xfff0000000000123ull));
    EXPECT_EQ(std::bit_cast<uint64_t>(nan),
              std::bit_cast<uint64_t>(std::numeric_limits<double>::quiet_NaN()));
  }
}

TEST(DTypeTest, IntegersWrap) {
  EXPECT_EQ(WrapTo(DType::kI8, 128), -128);
  EXPECT_EQ(WrapTo(DType::kU8, -1), 255);
  EXPECT_EQ(WrapTo(DType::kI16, 65535), -1);
  EXPECT_EQ(WrapTo(DType::kU32, -1), 0xffffffffll);
  EXPECT_EQ(WrapTo(DType::kI64, INT64_MIN), INT64_MIN);
  EXPECT_EQ(WrapTo(DType::kU64, -1), -1);  // its bits
  EXPECT_EQ(WrapTo(DType::kBool, 256), 1);
  for (const DType dtype :
       {DType::kI8, DType::kU8, DType::kI16, DType::kU16, DType::kI32, DType::kU32, DType::kI64}) {
    int64_t cell = 0;
    for (const int64_t value : {IntMin(dtype), IntMax(dtype), int64_t{0}, int64_t{1}}) {
      StoreInt(dtype, value, &cell);
      EXPECT_EQ(LoadInt(dtype, &cell), value) << Name(dtype);
    }
  }
}

TEST(DTypeTest, NamesGoRound) {
  for (int i = 0; i < kDTypeCount; ++i)
    EXPECT_EQ(DTypeFromName(Name(static_cast<DType>(i))), static_cast<DType>(i));
  EXPECT_EQ(DTypeFromName("f33"), std::nullopt);
  EXPECT_EQ(DTypeFromName(""), std::nullopt);
}

}  // namespace
}  // namespace outboard
