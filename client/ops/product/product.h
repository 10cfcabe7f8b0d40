// Products beyond Tensor::matmul: einsum, attention, recurrent cells and decompositions of
// matrices.
#pragma once

#include <string_view>
#include <vector>

#include "client/tensor/tensor.h"

namespace outboard {

// Sums of products over named axes.
//
// einsum("ij,jk->ik", {a, b}) sums the products of elements over every letter that is not on the
// right. A letter that stands twice in one operand takes its diagonal; "..." stands for axes that
// broadcast; without "->" the result has the letters that occur once, in the order of the alphabet.
// Types:  the operands promote; sums are those of Tensor::sum, so integers below 32 bits become 32.
// Cost:   operands are multiplied from the left to the right, and a letter is summed as soon as no
//         later operand has it.
// Errors: INVALID_ARGUMENT for a formula that does not fit the operands, and lengths of one letter
//         that differ; the message quotes the formula.

Tensor einsum(std::string_view formula, const std::vector<Tensor>& operands, At at = At::current());

// Attention: for each query a mean of the values, weighted by the match of their keys.
//
//   query [..., L, E], key [..., S, E], value [..., S, V]  ->  [..., L, V]
//   softmax(query key^T / sqrt(E) + mask) value         (Vaswani et al., 2017)
//
// The axes before the last two broadcast. With enable_gqa key and value may have fewer heads (the
// axis before the last two) than the query: each then serves a group of consecutive query heads.
// Scores and their softmax are of f32, or f64 where query or key are; the weights are then rounded
// to the query's type, which the result has where the values have it, too.
// Errors: INVALID_ARGUMENT for shapes that do not match, a mask together with is_causal, and head
// counts that do not divide.
// Threads: as Tensor.

struct AttentionOptions {
  Tensor mask = {};        // [..., L, S]: bool: true is visible; numbers: added to the scores
  double dropout_p = 0;    // fraction of weights set to zero in training
  bool is_causal = false;  // query i sees keys 0 ... i
  bool enable_gqa = false;
};

Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                    const AttentionOptions& options = {}, At at = At::current());

// Steps of recurrent networks: compute the next state from a state and an input.
//
// Each step is a graph of its own; for a sequence the program loops.
// Errors: INVALID_ARGUMENT where shapes do not fit. Threads: as Tensor.

// Of a long short-term memory (Hochreiter and Schmidhuber, 1997), [B, H] each.
struct LstmState {
  Tensor hidden, cell;
};

// [4 H, input], [4 H, H] and twice [4 H] (or empty), of the gates for input, forgetting, the cell's
// candidate, and output, one below the other.
struct LstmWeights {
  Tensor input, hidden;
  Tensor input_bias, hidden_bias;
};

// x [B, input]; an empty state is zeros.
LstmState lstm_cell(const Tensor& x, const LstmState& state, const LstmWeights& weights,
                    At at = At::current());

// Decompositions of matrices: the last two axes of x, [..., m, n]; those before them are a batch.
//
// Types:  floats; f16, bf16 and f8 are computed in f32 and come back as they were.
// Cost:   the graph grows with the matrix: qr has a step per column, svd kSweeps * (n - 1) steps.
//         For small matrices, as in models.
// Gradient: that of the steps; for svd undefined where singular values coincide.
// Errors: INVALID_ARGUMENT for fewer than two axes, other types, and sizes of variables.

// x = q r: q [..., m, m] orthogonal, r [..., m, n] upper triangular. By Householder reflections;
// the sign of r's diagonal is unspecified.
struct Qr {
  Tensor q, r;
};
Qr qr(const Tensor& x, At at = At::current());

// x = u diag(s) v: s [..., k] with k = min(m, n), not negative and falling; u [..., m, m] and
// v [..., n, n] orthogonal, or [..., m, k] and [..., k, n] unless `full_matrices`. By Jacobi
// rotations of pairs of columns (M. Hestenes 1958), pairs in the order of R. Brent and F. Luk
// (1985).
struct Svd {
  Tensor u, s, v;
};
Svd svd(const Tensor& x, bool full_matrices = true, At at = At::current());

// Applies the odd polynomial p(x) = c0 x + c1 (x x^T) x + c2 (x x^T)^2 x ... to the singular values
// `steps` times, starting from x divided by its norm + eps: (2, -1.5, 0.5) gives the orthogonal
// matrix closest to x.
Tensor newton_schulz(const Tensor& x, int64_t steps, const std::vector<double>& coefficients,
                     double eps = 1e-7, At at = At::current());

}  // namespace outboard
