// Attention: for each query a mean of the values, weighted by the match of their keys.
//
//   query [..., L, E], key [..., S, E], value [..., S, V]  ->  [..., L, V]
//   softmax(query key^T / sqrt(E) + mask) value         (Vaswani et al., 2017)
//
// The axes before the last two broadcast. With enable_gqa key and value may have fewer heads (the
// axis before the last two) than the query: each then serves a group of consecutive query heads.
// Scores are accumulated in f32 at least; the weights and the result have the query's type.
// Errors: INVALID_ARGUMENT for shapes that do not match, a mask together with is_causal, and head
// counts that do not divide.
// Threads: as Tensor.
#pragma once

#include "client/tensor/tensor.h"

namespace outboard {

struct AttentionOptions {
  Tensor mask = {};        // [..., L, S]: bool: true is visible; numbers: added to the scores
  double dropout_p = 0;    // fraction of weights set to zero in training
  bool is_causal = false;  // query i sees keys 0 ... i
  bool enable_gqa = false;
};

Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                    const AttentionOptions& options = {}, At at = At::current());

}  // namespace outboard
