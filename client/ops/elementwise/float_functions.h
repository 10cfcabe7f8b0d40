// Building blocks of functions of floats: for elementwise.cc and its neighbours, not for programs.
//
// Each function takes an expression of a float type and returns one of the same shape and type. The
// argument of a branch that is not taken is replaced by one that does not overflow, because 0 times
// infinity would make the gradient NaN. Threads: as NodeBuilder.
#pragma once

#include "client/lazy/node_expr.h"
#include "client/ops/elementwise/promote.h"
#include "client/tensor/tensor.h"

namespace outboard::internal {

NodeExpr Relu(const NodeExpr& x);      // max(x, 0)
NodeExpr Sigmoid(const NodeExpr& x);   // 1 / (1 + exp(-x))
NodeExpr Softplus(const NodeExpr& x);  // log(1 + exp(x))
// x where it is positive, else alpha * (exp(x / width) - 1).
NodeExpr ExponentialBelowZero(const NodeExpr& x, double alpha, double width);
// log(1 + x) for x >= 0, accurate also for small x.
NodeExpr Log1p(const NodeExpr& x);
// Rounded down.
NodeExpr Floor(const NodeExpr& x);
// Whether the whole number x is odd.
NodeExpr IsOdd(const NodeExpr& x);

// A function of an expression: of any type.
template <typename F>
Tensor Of(const Tensor& tensor, const At& at, const F& function) {
  const NodeBuilder rec(at);
  return TensorOf(function(ExprOf(rec, tensor)));
}

// A function of floats; integers become f32 first.
template <typename F>
Tensor OfFloat(const Tensor& tensor, const At& at, const F& function) {
  return Of(tensor, at, [&](const NodeExpr& x) { return function(x.Cast(FloatOf(x->dtype))); });
}

// The same, computed in f32 at least: for functions of more than a few steps.
template <typename F>
Tensor OfWideFloat(const Tensor& tensor, const At& at, const F& function) {
  return OfFloat(tensor, at, [&](const NodeExpr& x) {
    return function(x.Cast(AccumulateType(x->dtype))).Cast(x->dtype);
  });
}

}  // namespace outboard::internal
