// What functions of floats are made of, as nodes: for elementwise.cc and its neighbours, not for
// programs.
//
// Each takes a node of a float type and gives one of the same shape and type. Where a branch is not
// taken its argument is one that overflows nowhere, since in a gradient 0 times infinity is NaN.
// Threads: as NodeBuilder.
#pragma once

#include "client/lazy/node_builder.h"
#include "client/ops/elementwise/promote.h"
#include "client/tensor/tensor.h"

namespace outboard::internal {

const UOp* Over(const NodeBuilder& rec, const UOp* a, const UOp* b);
const UOp* Less(const NodeBuilder& rec, const UOp* a, const UOp* b);
const UOp* IsBelow(const NodeBuilder& rec, const UOp* a, double b);
const UOp* Plus(const NodeBuilder& rec, const UOp* a, double b);
const UOp* Neg(const NodeBuilder& rec, const UOp* a);

const UOp* Relu(const NodeBuilder& rec, const UOp* x);
const UOp* Sigmoid(const NodeBuilder& rec, const UOp* x);
const UOp* Softplus(const NodeBuilder& rec, const UOp* x);
// x where it is positive, else alpha * (exp(x / width) - 1).
const UOp* ExponentialBelowZero(const NodeBuilder& rec, const UOp* x, double alpha, double width);
// log(1 + x) for x >= 0, as exact where x is small.
const UOp* Log1p(const NodeBuilder& rec, const UOp* x);

// A function of floats; integers become f32 first.
template <typename F>
Tensor OfFloat(const Tensor& tensor, const At& at, const F& function) {
  const NodeBuilder rec(at);
  const UOp* const x = tensor.NodeIn(rec);
  return Tensor::FromNode(rec, function(rec, rec.Cast(x, FloatOf(x->dtype))));
}

// The same, computed in f32 at least: for what takes more than a few steps.
template <typename F>
Tensor OfWideFloat(const Tensor& tensor, const At& at, const F& function) {
  return OfFloat(tensor, at, [&](const NodeBuilder& rec, const UOp* x) {
    return rec.Cast(function(rec, rec.Cast(x, AccumulateType(x->dtype))), x->dtype);
  });
}

}  // namespace outboard::internal
