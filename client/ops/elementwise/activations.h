// Activations that are not methods of Tensor (relu, gelu, silu ... are), with the names and
// defaults of tinygrad and PyTorch.
//
// Shapes: any; the result has the operand's. Types: floats; integers become f32 first, but relu6
// keeps them. Errors and threads: as tensor.h.
#pragma once

#include "client/tensor/tensor.h"

namespace outboard {

// min(max(x, 0), 6).
Tensor relu6(const Tensor& x, At at = At::current());
// alpha x + beta within [0, 1].
Tensor hardsigmoid(const Tensor& x, double alpha = 1.0 / 6, double beta = 0.5,
                   At at = At::current());
// x relu6(x + 3) / 6.
Tensor hardswish(const Tensor& x, At at = At::current());
// x where positive, else alpha (exp(x / alpha) - 1).
Tensor celu(const Tensor& x, double alpha = 1, At at = At::current());
// gamma elu(x, alpha).
Tensor selu(const Tensor& x, double alpha = 1.67326, double gamma = 1.0507, At at = At::current());
// log(1 + exp(beta x)) / beta.
Tensor softplus(const Tensor& x, double beta, At at = At::current());
// x tanh(softplus(x)).
Tensor mish(const Tensor& x, At at = At::current());
// log(sigmoid(x)).
Tensor logsigmoid(const Tensor& x, At at = At::current());
// x / (1 + |x|).
Tensor softsign(const Tensor& x, At at = At::current());
// x sigmoid(1.702 x).
Tensor quick_gelu(const Tensor& x, At at = At::current());
// x times the cumulative normal distribution at x, by erf; Tensor::gelu is the tanh approximation.
Tensor gelu_erf(const Tensor& x, At at = At::current());
// softmax(-x).
Tensor softmin(const Tensor& x, const Axes& axes = -1, At at = At::current());

}  // namespace outboard
