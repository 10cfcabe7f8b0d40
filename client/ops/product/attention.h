// Attention: for each query a mean of the values, weighted by how its key fits.
//
//   query [..., L, E], key [..., S, E], value [..., S, V]  ->  [..., L, V]
//   softmax(query key^T / sqrt(E) + mask) value         (Vaswani et al., 2017)
//
// The axes before the last two broadcast; key and value may have fewer heads (the axis before the
// last two) than the query with enable_gqa: each of theirs then serves as many of the query's in
// turn. Scores are added up in f32 at least; the weights and the result have the query's type.
// Errors: INVALID_ARGUMENT for shapes that do not fit, a mask beside is_causal, and heads that do
// not divide.
// Threads: as Tensor.
#pragma once

#include "client/tensor/tensor.h"

namespace outboard {

struct AttentionOptions {
  Tensor mask = {};        // [..., L, S]: bool says who is seen, numbers are added to the scores
  double dropout_p = 0;    // share of weights that are zero in training
  bool is_causal = false;  // query i sees keys 0 ... i
  bool enable_gqa = false;
};

Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                    const AttentionOptions& options = {}, At at = At::current());

}  // namespace outboard
