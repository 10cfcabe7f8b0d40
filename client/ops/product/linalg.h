// Decompositions of matrices: the last two axes of x, [..., m, n]; those before them are a batch.
//
// Types:  floats; f16, bf16 and f8 are computed in f32 and come back as they were.
// Cost:   the graph grows with the matrix: qr has a step per column, svd kSweeps * (n - 1) steps.
//         For small matrices, as in models.
// Gradient: that of the steps; for svd undefined where singular values coincide.
// Errors: INVALID_ARGUMENT for fewer than two axes, other types, and sizes of variables.
#pragma once

#include <vector>

#include "client/tensor/tensor.h"

namespace outboard {

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
