// Writing by index: Python's x[indices] = value. (Not the items of a session.) Defined in
// client/ops/index/index.cc.
//
// Indices are those of Tensor::operator[], of every kind. The value is a number or a tensor; it is
// cast to the dtype of x and broadcasts to the shape of x[indices]. If several values address one
// element, the last one is stored. An index tensor's element that is out of range writes nothing.
// Gradient: to the value where it was stored, to x elsewhere.
// Errors: INVALID_ARGUMENT as operator[], and for a value that does not broadcast or that the dtype
// cannot represent.
#pragma once

#include <vector>

#include "client/tensor/tensor.h"

namespace outboard {

// Returns x with `value` at those positions.
Tensor with_items(const Tensor& x, const std::vector<Index>& indices, const Arg& value);

// The same in place: visible in every copy and view of x, but not in tensors computed from x
// before.
void set_items(Tensor& x, const std::vector<Index>& indices, const Arg& value);

// Returns x[indices]. If x is realised, state or assigned (or such a part itself) and no index is a
// tensor, the result is a view of x: assigning to it writes to x at those positions, and later
// assigns to x show in it.
Tensor part(const Tensor& x, const std::vector<Index>& indices);

}  // namespace outboard
