#include "client/ops/elementwise/activations.h"

#include <numbers>

#include "client/ops/elementwise/float_functions.h"
#include "client/ops/elementwise/transcendental.h"

namespace outboard {

using internal::NodeExpr;
using internal::OfFloat;
using internal::Relu;
using internal::Sigmoid;
using internal::Softplus;

Tensor relu6(const Tensor& x, At at) {
  const CallSite site(at);
  return x.relu().clip(0, 6);
}

Tensor hardsigmoid(const Tensor& x, double alpha, double beta, At at) {
  return OfFloat(x, at, [&](const NodeExpr& x) {
    const NodeExpr line = x * alpha + beta;
    return Relu(line) - Relu(line - 1);
  });
}

Tensor hardswish(const Tensor& x, At at) {
  return OfFloat(x, at,
                 [](const NodeExpr& x) { return x * (Relu(x + 3) - Relu(x - 3)) * (1.0 / 6); });
}

Tensor celu(const Tensor& x, double alpha, At at) {
  return OfFloat(x, at, [&](const NodeExpr& x) { return ExponentialBelowZero(x, alpha, alpha); });
}

Tensor selu(const Tensor& x, double alpha, double gamma, At at) {
  return OfFloat(x, at,
                 [&](const NodeExpr& x) { return ExponentialBelowZero(x, alpha, 1) * gamma; });
}

Tensor softplus(const Tensor& x, double beta, At at) {
  return OfFloat(x, at, [&](const NodeExpr& x) {
    return beta == 1 ? Softplus(x) : Softplus(x * beta) * (1 / beta);
  });
}

Tensor mish(const Tensor& x, At at) {
  return OfFloat(x, at, [](const NodeExpr& x) { return x * Tanh(Softplus(x)); });
}

Tensor logsigmoid(const Tensor& x, At at) {
  return OfFloat(x, at, [](const NodeExpr& x) { return -Softplus(-x); });
}

Tensor softsign(const Tensor& x, At at) {
  return OfFloat(x, at, [](const NodeExpr& x) { return x / (Abs(x) + 1); });
}

Tensor quick_gelu(const Tensor& x, At at) {
  return OfFloat(x, at, [](const NodeExpr& x) { return x * Sigmoid(x * 1.702); });
}

// In f32 at least: where erf is near -1, a narrow type has no digits left.
Tensor gelu_erf(const Tensor& x, At at) {
  const CallSite site(at);
  const DType dtype = FloatOf(x.dtype());
  const Tensor wide = x.cast(AccumulateType(dtype));
  return (wide * 0.5 * (erf(wide * (std::numbers::sqrt2 / 2)) + 1)).cast(dtype);
}

Tensor softmin(const Tensor& x, const Axes& axes, At at) {
  const CallSite site(at);
  return x.cast(FloatOf(x.dtype())).neg().softmax(axes);
}

}  // namespace outboard
