// Products of rows by weights that are packed in 8 or 4 bits, as language models have them.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <utility>

#include "compiler/ir/uop.h"

namespace outboard::test {

// kU32: eight numbers of 4 bits in each u32, with a scale for each column.
enum class Weights { kBf16, kInt8, kQ8, kQ4, kU32 };
inline constexpr std::pair<Weights, const char*> kAllWeights[] = {{Weights::kBf16, "bf16"},
                                                                  {Weights::kInt8, "int8"},
                                                                  {Weights::kQ8, "Q8_0"},
                                                                  {Weights::kQ4, "Q4_0"}};

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
