// Products of rows by weights that are packed in 8 or 4 bits, as language models have them.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <utility>

#include "compiler/ir/uop.h"

namespace outboard::test {

// kU32: eight numbers of 4 bits in each u32, with a scale for each column. The others behind kInt8
// are types of GGUF files.
enum class Weights { kBf16, kInt8, kQ8, kQ4, kIq4Nl, kIq4Xs, kMxfp4, kQ2K, kQ4K, kQ6K, kU32 };
inline constexpr std::pair<Weights, const char*> kAllWeights[] = {
    {Weights::kBf16, "bf16"},  {Weights::kInt8, "int8"},    {Weights::kQ8, "Q8_0"},
    {Weights::kQ4, "Q4_0"},    {Weights::kIq4Nl, "IQ4_NL"}, {Weights::kIq4Xs, "IQ4_XS"},
    {Weights::kMxfp4, "MXFP4"}};
// Their blocks of 256 numbers have a scale, and some a least value, for each 16 or 32 of them.
inline constexpr std::pair<Weights, const char*> kWeightsOfManyScales[] = {
    {Weights::kQ2K, "Q2_K"}, {Weights::kQ4K, "Q4_K"}, {Weights::kQ6K, "Q6_K"}};

// [rows, terms] in bf16 times the transpose of [columns, terms], in f32.
struct PackedProduct {
  int64_t rows = 1, columns = 96, terms = 2048;
  Weights weights = Weights::kInt8;

  int64_t WeightBytes() const;
  // The most bytes of f32 sums that are kept for a while: of parts of a sum that blocks share. Of
  // the weights that is a small part: their scales fit, too.
  int64_t BytesOfSums() const;
  // As a program writes it.
  const UOp* Record(Graph& graph) const;
  // Small numbers; of packed weights the scales of blocks, f16 in the first two bytes, too.
  std::string RandomBytes(const UOp* param, std::mt19937& random) const;
};

}  // namespace outboard::test
