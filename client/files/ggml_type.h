// The element types of GGML, as GGUF files name them: plain ones, which tensors here have too, and
// quantised ones, whose elements lie in blocks of a scale (or several) and a few bits an element.
// What the bits of a block mean is in client/nn/ggml.h.
//
// Source: the enumeration `ggml_type` and the block structures of GGML (ggml.h, ggml-common.h), as
// of 2025. Omits codes that GGML withdrew (4, 5, 31 to 33, 36 to 38) and types that exist only
// during a product (9, 15). Threads: pure functions.
#pragma once

#include <cstdint>
#include <string_view>

#include "compiler/ir/dtype.h"

namespace outboard::files {

// By their codes in files.
enum class GgmlType : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ2_K = 10,
  kQ3_K = 11,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kIq2Xxs = 16,
  kIq2Xs = 17,
  kIq3Xxs = 18,
  kIq1S = 19,
  kIq4Nl = 20,
  kIq3S = 21,
  kIq2S = 22,
  kIq4Xs = 23,
  kI8 = 24,
  kI16 = 25,
  kI32 = 26,
  kI64 = 27,
  kF64 = 28,
  kIq1M = 29,
  kBF16 = 30,
  kTq1_0 = 34,
  kTq2_0 = 35,
  kMxfp4 = 39,
  kQ1_0 = 41,
};

// The number of elements per block and its size in bytes; 1 element for plain types.
struct GgmlLayout {
  GgmlType type;
  std::string_view name;
  int64_t block_elements = 1;
  int64_t block_bytes = 0;
  DType plain = DType::kVoid;  // of a type that is not quantised
};

inline constexpr GgmlLayout kGgmlLayouts[] = {
    {GgmlType::kF32, "F32", 1, 4, DType::kF32},
    {GgmlType::kF16, "F16", 1, 2, DType::kF16},
    {GgmlType::kQ4_0, "Q4_0", 32, 18},
    {GgmlType::kQ4_1, "Q4_1", 32, 20},
    {GgmlType::kQ5_0, "Q5_0", 32, 22},
    {GgmlType::kQ5_1, "Q5_1", 32, 24},
    {GgmlType::kQ8_0, "Q8_0", 32, 34},
    {GgmlType::kQ2_K, "Q2_K", 256, 84},
    {GgmlType::kQ3_K, "Q3_K", 256, 110},
    {GgmlType::kQ4_K, "Q4_K", 256, 144},
    {GgmlType::kQ5_K, "Q5_K", 256, 176},
    {GgmlType::kQ6_K, "Q6_K", 256, 210},
    {GgmlType::kIq2Xxs, "IQ2_XXS", 256, 66},
    {GgmlType::kIq2Xs, "IQ2_XS", 256, 74},
    {GgmlType::kIq3Xxs, "IQ3_XXS", 256, 98},
    {GgmlType::kIq1S, "IQ1_S", 256, 50},
    {GgmlType::kIq4Nl, "IQ4_NL", 32, 18},
    {GgmlType::kIq3S, "IQ3_S", 256, 110},
    {GgmlType::kIq2S, "IQ2_S", 256, 82},
    {GgmlType::kIq4Xs, "IQ4_XS", 256, 136},
    {GgmlType::kI8, "I8", 1, 1, DType::kI8},
    {GgmlType::kI16, "I16", 1, 2, DType::kI16},
    {GgmlType::kI32, "I32", 1, 4, DType::kI32},
    {GgmlType::kI64, "I64", 1, 8, DType::kI64},
    {GgmlType::kF64, "F64", 1, 8, DType::kF64},
    {GgmlType::kIq1M, "IQ1_M", 256, 56},
    {GgmlType::kBF16, "BF16", 1, 2, DType::kBF16},
    {GgmlType::kTq1_0, "TQ1_0", 256, 54},
    {GgmlType::kTq2_0, "TQ2_0", 256, 66},
    {GgmlType::kMxfp4, "MXFP4", 32, 17},
    {GgmlType::kQ1_0, "Q1_0", 128, 18},
};

// Returns null for an unknown code.
constexpr const GgmlLayout* FindGgmlLayout(uint32_t code) {
  for (const GgmlLayout& layout : kGgmlLayouts)
    if (static_cast<uint32_t>(layout.type) == code) return &layout;
  return nullptr;
}

}  // namespace outboard::files
