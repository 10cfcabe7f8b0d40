// The kernels of attention's gradients in bf16 where the forward kernel stored each row's maximum
// and sum, as they are in a training step: for tests and figures.
#pragma once

#include <cstdint>

#include "compiler/ir/uop.h"

namespace outboard::test {

struct GradientShape {
  int64_t heads = 1, queries = 128, keys = 128, width = 64;
  bool causal = false;
  double scale = 0.125;
  // The sum over a row's keys is one over columns (compiler/schedule/keys/gradient_sums.h): both
  // kernels load it, and do not round dp.
  bool loads_dot = false;

  int64_t of_queries() const { return heads * queries * width; }
  int64_t of_keys() const { return heads * keys * width; }
  int64_t rows() const { return heads * queries; }
};

// What both load, by slot, after the results' two: q, k, v and the result's gradient, of bf16; the
// maximum and the sum of each row, of f32; of keys' kernel also dot.
inline constexpr int64_t kSlotQ = 2, kSlotK = 3, kSlotV = 4, kSlotOut = 5, kSlotMax = 6,
                         kSlotSum = 7, kSlotDot = 8;

// With x = scale bf16(q k), -infinity where `causal` hides a key, e = exp(x - max), and dp = the
// result's gradient times v, rounded to bf16. Slot 1, of f32: dot = - sum of e / sum (dp / sum)
// over the keys of a row, which is loaded from there where `loads_dot`. Slot 0: q's gradient, sum
// of bf16(scale e (dp / sum + dot)) k.
const UOp* QueriesGradientKernel(Graph& g, const GradientShape& shape);

// Slot 0: k's gradient, sum of bf16(scale e (dp / sum + dot)) q over the queries, with dot loaded
// (slot 8). Slot 1: v's, sum of bf16(e / sum) times the result's gradient.
const UOp* KeysGradientKernel(Graph& g, const GradientShape& shape);

}  // namespace outboard::test
