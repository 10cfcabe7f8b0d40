// Gradients of everything that a value was computed from, as programs in Python expect them: no
// tensor has to be declared before. (In C++ Tensor::backward does it for those with requires_grad.)
//
// A gradient is as lazy as anything. An optimiser's step replaces what it would be computed from,
// so that keeping it would keep the old parameters: the step uses it up. It is not there then,
// which Python tells when it is asked for, and nothing is added to it until set_grad({}). One that
// somebody else holds too, or that is realised, stays.
//
// Errors: INVALID_ARGUMENT   `y` is of no float type, or of several elements where there is no
// `upstream` Threads: one at a time for tensors that were computed from each other.
#pragma once

#include <vector>

#include "client/tensor/tensor.h"

namespace outboard {

// Adds d(y)/d(x), weighted by `upstream` (1 where it is empty), to grad() of every tensor x of
// floats that is alive and that `y` was computed from, `y` included. A tensor that is still a
// number repeated over its shape is no variable: it has none unless it was realised.
void backward(const Tensor& y, const Tensor& upstream = {}, At at = At::current());

// ---- for the library ----------------------------------------------------------------------------
bool IsGradientUsedUp(const Tensor& tensor);
// Of these, and of all that backward() has given one to and that has no requires_grad.
void UseUpGradients(const std::vector<Tensor>& parameters);
// What backward() began at since it was last asked for: as far as it is alive, not computed yet,
// and of the session of `parameter`.
std::vector<Tensor> TakeDifferentiated(const Tensor& parameter);

namespace internal {
class NodeBuilder;
// A number, repeated over a shape perhaps. Such a node may be any constant of the graph, so that it
// is no variable.
bool IsNumber(const UOp* node);
// The gradients of `y`, as compiler/gradient/gradient.h says, kept for the next time.
std::vector<const UOp*> GradientNodes(const NodeBuilder& rec, const UOp* y, const UOp* upstream,
                                      const std::vector<const UOp*>& wrt);
// `upstream` for `y`, or nullptr for an empty one, which `y` must allow.
const UOp* UpstreamNode(const NodeBuilder& rec, const UOp* y, const Tensor& upstream);
}  // namespace internal

}  // namespace outboard
