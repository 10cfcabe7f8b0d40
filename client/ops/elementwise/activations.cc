#include "client/ops/elementwise/activations.h"

#include <numbers>

#include "client/ops/elementwise/float_functions.h"
#include "client/ops/elementwise/transcendental.h"

namespace outboard {

using internal::Neg;
using internal::NodeBuilder;
using internal::OfFloat;
using internal::Over;
using internal::Plus;
using internal::Relu;
using internal::Sigmoid;
using internal::Softplus;

Tensor relu6(const Tensor& x, At at) { return x.relu(at).clip({0, at}, {6, at}); }

Tensor hardsigmoid(const Tensor& x, double alpha, double beta, At at) {
  return OfFloat(x, at, [&](const NodeBuilder& rec, const UOp* x) {
    const UOp* const line = Plus(rec, rec.Scale(x, alpha), beta);
    return rec.Sub(Relu(rec, line), Relu(rec, Plus(rec, line, -1)));
  });
}

Tensor hardswish(const Tensor& x, At at) {
  return OfFloat(x, at, [&](const NodeBuilder& rec, const UOp* x) {
    const UOp* const share = rec.Sub(Relu(rec, Plus(rec, x, 3)), Relu(rec, Plus(rec, x, -3)));
    return rec.Scale(rec.Mul(x, share), 1.0 / 6);
  });
}

Tensor celu(const Tensor& x, double alpha, At at) {
  return OfFloat(x, at, [&](const NodeBuilder& rec, const UOp* x) {
    return internal::ExponentialBelowZero(rec, x, alpha, alpha);
  });
}

Tensor selu(const Tensor& x, double alpha, double gamma, At at) {
  return OfFloat(x, at, [&](const NodeBuilder& rec, const UOp* x) {
    return rec.Scale(internal::ExponentialBelowZero(rec, x, alpha, 1), gamma);
  });
}

Tensor softplus(const Tensor& x, double beta, At at) {
  return OfFloat(x, at, [&](const NodeBuilder& rec, const UOp* x) {
    return beta == 1 ? Softplus(rec, x) : rec.Scale(Softplus(rec, rec.Scale(x, beta)), 1 / beta);
  });
}

Tensor mish(const Tensor& x, At at) {
  return OfFloat(x, at, [](const NodeBuilder& rec, const UOp* x) {
    return rec.Mul(x, rec.Alu(Op::kTanh, Softplus(rec, x)));
  });
}

Tensor logsigmoid(const Tensor& x, At at) {
  return OfFloat(x, at, [](const NodeBuilder& rec, const UOp* x) {
    return Neg(rec, Softplus(rec, Neg(rec, x)));
  });
}

Tensor softsign(const Tensor& x, At at) {
  return OfFloat(x, at, [](const NodeBuilder& rec, const UOp* x) {
    return Over(rec, x, Plus(rec, rec.Alu(Op::kMax, x, Neg(rec, x)), 1));
  });
}

Tensor quick_gelu(const Tensor& x, At at) {
  return OfFloat(x, at, [](const NodeBuilder& rec, const UOp* x) {
    return rec.Mul(x, Sigmoid(rec, rec.Scale(x, 1.702)));
  });
}

// In f32 at least: where erf is near -1, a narrow type has no digits left.
Tensor gelu_erf(const Tensor& x, At at) {
  const DType dtype = FloatOf(x.dtype(at));
  const Tensor wide = x.cast(AccumulateType(dtype), at);
  const Tensor share = erf(Arg(wide, at) * Arg(std::numbers::sqrt2 / 2, at), at);
  return OfFloat(share, at, [&](const NodeBuilder& rec, const UOp* e) {
    return rec.Cast(rec.Mul(rec.Scale(wide.NodeIn(rec), 0.5), Plus(rec, e, 1)), dtype);
  });
}

Tensor softmin(const Tensor& x, const Axes& axes, At at) {
  return x.cast(FloatOf(x.dtype(at)), at).neg(at).softmax(axes, at);
}

}  // namespace outboard
