// Writing by index: what Python calls x[indices] = value.
//
// Indices are those of Tensor::operator[], with all that may stand there. The value is a number or
// a tensor; it is cast to the type of x, and broadcasts to the shape of x[indices].
// Of several values for one place the last one stays. An element of a tensor that is out of range
// writes nothing.
// Gradient: to the value where it was written (the one that stayed), to x elsewhere.
// Errors: INVALID_ARGUMENT as operator[], and for a value that does not broadcast or that the type
// has not.
#pragma once

#include <vector>

#include "client/tensor/tensor.h"

namespace outboard {

// x with the value at those places.
Tensor with_items(const Tensor& x, const std::vector<Index>& indices, const Arg& value);

// The same in place: seen by every copy of x, and not by what was computed from it before.
void set_items(Tensor& x, const std::vector<Index>& indices, const Arg& value);

// x[indices], and part of x: where x is realised, state or assigned (or such a part itself), and no
// tensor is among the indices, what is assigned to the result is written to x at those places. What
// x is given later is not seen in the result.
Tensor part(const Tensor& x, const std::vector<Index>& indices);

}  // namespace outboard
