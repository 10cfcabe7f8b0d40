// Elements of GGML's quantised types against what the reference implementation of the format makes
// of the same bytes, bit for bit.
#include "client/nn/ggml.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <cmath>

#include "tests/client/client_test.h"

namespace outboard {
namespace {

using files::GgmlType;

constexpr int64_t kBlocks = 8;

// The crc32 of 8 blocks' elements as f32 (with 0 for -0), by the Python package `gguf` 0.19. The
// blocks are Noise(), without bit 6 of the bytes in `halves`: so no f16 scale is an infinity or
// NaN.
struct Case {
  GgmlType type;
  std::vector<int64_t> halves;
  uint32_t crc;
};
const Case kCases[] = {
    {GgmlType::kQ4_0, {1}, 0x25e4c1d5},    {GgmlType::kQ4_1, {1, 3}, 0xd568743a},
    {GgmlType::kQ5_0, {1}, 0x70dc6a73},    {GgmlType::kQ5_1, {1, 3}, 0x12baa7a5},
    {GgmlType::kQ8_0, {1}, 0xab97f57f},    {GgmlType::kQ2_K, {81, 83}, 0x0a33cc7c},
    {GgmlType::kQ3_K, {109}, 0x7e93eb21},  {GgmlType::kQ4_K, {1, 3}, 0xaf03b8b1},
    {GgmlType::kQ5_K, {1, 3}, 0xcda7d301}, {GgmlType::kQ6_K, {209}, 0x78f407af},
    {GgmlType::kIq2Xxs, {1}, 0x4d89c464},  {GgmlType::kIq2Xs, {1}, 0x7e4fc678},
    {GgmlType::kIq3Xxs, {1}, 0xe7cba292},  {GgmlType::kIq1S, {1}, 0x8085a217},
    {GgmlType::kIq4Nl, {1}, 0xfb1f2a75},   {GgmlType::kIq3S, {1}, 0xdc1b86b3},
    {GgmlType::kIq2S, {1}, 0x474064e8},    {GgmlType::kIq4Xs, {1}, 0x196c4ac6},
    {GgmlType::kIq1M, {55}, 0x30c51fa0},   {GgmlType::kTq1_0, {53}, 0x2cc48887},
    {GgmlType::kTq2_0, {65}, 0xba03ddbf},  {GgmlType::kMxfp4, {0}, 0x225cbeb2},
};

// The high bytes of a linear congruence that begins at the type's code.
std::string Noise(const Case& c, int64_t block_bytes) {
  std::string bytes;
  auto state = static_cast<uint32_t>(c.type);
  for (int64_t i = 0; i < kBlocks * block_bytes; ++i) {
    state = state * 1664525 + 1013904223;
    bytes.push_back(static_cast<char>(state >> 24));
  }
  for (int64_t block = 0; block < kBlocks; ++block)
    for (const int64_t place : c.halves)
      bytes[static_cast<size_t>(block * block_bytes + place)] &= static_cast<char>(0xbf);
  return bytes;
}

using GgmlTest = ClientTest;

TEST_F(GgmlTest, ElementsAreThoseOfTheReference) {
  for (const Case& c : kCases) {
    const files::GgmlLayout* layout = files::FindGgmlLayout(static_cast<uint32_t>(c.type));
    ASSERT_NE(layout, nullptr);
    SCOPED_TRACE(layout->name);
    const Tensor blocks = Tensor::from_bytes(DType::kU8, {kBlocks, layout->block_bytes},
                                             Noise(c, layout->block_bytes));
    const Tensor elements = nn::dequantize(blocks, c.type);
    EXPECT_EQ(elements.dtype(), DType::kF32);
    std::vector<float> values = elements.to_vector<float>();
    ASSERT_EQ(values.size(), static_cast<size_t>(kBlocks * layout->block_elements));
    for (float& value : values)
      if (value == 0) value = 0;
    EXPECT_EQ(crc32(0, reinterpret_cast<const Bytef*>(values.data()),
                    static_cast<uInt>(values.size() * sizeof(float))),
              c.crc);
  }
}

TEST_F(GgmlTest, SignsOfOneBit) {
  std::string block(18, '\0');
  block[1] = 0x3e;         // 1.5
  block[2] = '\x05';       // elements 0 and 2
  block[17] = '\x80' + 0;  // the last
  const std::vector<float> values =
      nn::dequantize(Tensor::from_bytes(DType::kU8, {1, 18}, block), GgmlType::kQ1_0)
          .to_vector<float>();
  ASSERT_EQ(values.size(), 128u);
  for (size_t i = 0; i < values.size(); ++i)
    EXPECT_EQ(values[i], i == 0 || i == 2 || i == 127 ? 1.5f : -1.5f) << i;
}

TEST_F(GgmlTest, PlainTypesAreTheirBytes) {
  const float floats[] = {1.5f, -2, 1e-40f};
  const std::string_view bytes(reinterpret_cast<const char*>(floats), sizeof floats);
  EXPECT_EQ(nn::dequantize(Tensor::from_bytes(DType::kU8, {3, 4}, bytes), GgmlType::kF32)
                .to_vector<float>(),
            (std::vector<float>{1.5f, -2, 1e-40f}));
  const int64_t whole[] = {-1, int64_t{1} << 40};
  EXPECT_EQ(nn::dequantize(
                Tensor::from_bytes(DType::kU8, {2, 8}, {reinterpret_cast<const char*>(whole), 16}),
                GgmlType::kI64)
                .to_vector<int64_t>(),
            (std::vector<int64_t>{-1, int64_t{1} << 40}));
}

TEST_F(GgmlTest, BlocksOfAnotherSizeAreRefused) {
  EXPECT_THROW(nn::dequantize(Tensor::zeros({3, 17}, DType::kU8), GgmlType::kQ4_0), Error);
  EXPECT_THROW(nn::dequantize(Tensor::zeros({3, 18}, DType::kI8), GgmlType::kQ4_0), Error);
  EXPECT_THROW(nn::dequantize(Tensor::zeros({54}, DType::kU8), GgmlType::kQ4_0), Error);
}

}  // namespace
}  // namespace outboard
