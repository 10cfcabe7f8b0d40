// Attention of any shape as a graph, for the tests of its kernels.
#pragma once

#include <cstdint>

#include "compiler/ir/uop.h"

namespace outboard::test {

// softmax(query key^T / sqrt(width) + mask) value, and its gradients if wanted.
struct AttentionShape {
  int64_t heads = 1, queries = 1, keys = 1, width = 1;
  bool causal = false, bias = false, backward = false;
  int64_t band = 0;  // if > 0: query i sees keys i - band + 1 ... i
  DType dtype = DType::kF32;
  int64_t batch = 2;
};

// The graph's SINK: the result, then the gradients of query, key and value.
const UOp* AttentionGraph(Graph& graph, const AttentionShape& shape);

}  // namespace outboard::test
