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

namespace {

// min(max(x, 0), 1). As relu's, its slope is 0 at both ends.
NodeExpr Unit(const NodeExpr& x) { return -Max(-Relu(x), -1); }

}  // namespace

// Functions of one tensor: each opens its caller's line and is a formula of x, a float.
#define OB_FUNCTION(name, formula)                                         \
  Tensor name(const Tensor& tensor, At at) {                               \
    return OfFloat(tensor, at, [](const NodeExpr& x) { return formula; }); \
  }
// clang-format off
OB_FUNCTION(hardswish,  x * Unit(x * (1.0 / 6) + 0.5))
OB_FUNCTION(mish,       x * Tanh(Softplus(x)))
OB_FUNCTION(logsigmoid, -Softplus(-x))
OB_FUNCTION(softsign,   x / (Abs(x) + 1))
OB_FUNCTION(quick_gelu, x * Sigmoid(x * 1.702))
// clang-format on
#undef OB_FUNCTION

Tensor relu6(const Tensor& x, At at) {
  const CallSite site(at);
  return x.relu().clip(0, 6);
}

Tensor hardsigmoid(const Tensor& x, double alpha, double beta, At at) {
  return OfFloat(x, at, [&](const NodeExpr& x) { return Unit(x * alpha + beta); });
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
