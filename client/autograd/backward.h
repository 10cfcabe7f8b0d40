// Gradients with respect to every tensor that a value was computed from, as Python programs expect
// them: no tensor has to be declared first. (In C++ Tensor::backward does this for tensors with
// requires_grad.)
//
// A gradient is lazy. An optimiser's step replaces the parameters that the gradient depends on, so
// that a retained gradient would retain the old parameters. Therefore the step uses gradients up: a
// used-up gradient is gone, Python raises an error when it is read, and nothing is added to it
// until set_grad({}). A gradient that is realised, or that another Tensor also refers to, stays.
//
// Errors: INVALID_ARGUMENT   `y` is not of a float type, or has several elements and no `upstream`
// Threads: one at a time for tensors that were computed from each other.
#pragma once

#include <vector>

#include "client/tensor/tensor.h"

namespace outboard {

// Adds d(y)/d(x), weighted by `upstream` (1 if empty), to grad() of every live float tensor x that
// `y` was computed from, including `y`. A tensor that is a number repeated over its shape is a
// constant of the graph and gets no gradient unless it was realised; nor do two live tensors that
// are the same constant, such as two of eye(3).
void backward(const Tensor& y, const Tensor& upstream = {}, At at = At::current());

// ---- for the library ----------------------------------------------------------------------------
bool IsGradientUsedUp(const Tensor& tensor);
// Uses up the gradients of `parameters` and all gradients that backward() gave to tensors without
// requires_grad.
void UseUpGradients(const std::vector<Tensor>& parameters);
// Returns the tensors on which backward() was called since the last call of this function, as far
// as they are alive, not computed yet, and of the session of `parameter`.
std::vector<Tensor> TakeDifferentiated(const Tensor& parameter);

namespace internal {
class NodeBuilder;
struct TensorState;
// True for a number, possibly repeated over a shape. Such a node may stand for any constant of the
// graph, so it cannot be a variable.
bool IsNumber(const UOp* node);
// True for a constant, such as eye(3), that is another live tensor too: they are one node.
bool IsOneOfEqualConstants(const TensorState& value);
// Returns the gradients of `y` (compiler/gradient/gradient.h). Cached.
std::vector<const UOp*> GradientNodes(const NodeBuilder& rec, const UOp* y, const UOp* upstream,
                                      const std::vector<const UOp*>& wrt);
// Returns the node of `upstream` for `y`; nullptr for an empty one, which `y` must allow.
const UOp* UpstreamNode(const NodeBuilder& rec, const UOp* y, const Tensor& upstream);
}  // namespace internal

}  // namespace outboard
