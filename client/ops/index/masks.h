// Elements by a mask of bool.
//
// A mask broadcasts to the shape of x. How many places are true is known in the cloud alone:
// without `size` the functions here ask for it, which sends what is recorded and waits; with `size`
// they do not wait: of more places the first count, and what is missing is `fill`.
// Order:    row-major. Indices are i32.
// Gradient: back to the places that were taken.
// Errors:   INVALID_ARGUMENT for a mask of another type, shapes that do not broadcast, a negative
//           size.
#pragma once

#include "client/tensor/tensor.h"

namespace outboard {

// mask ? value : x, where all broadcast, and x and value promote.
Tensor masked_fill(const Tensor& x, const Tensor& mask, const Arg& value);

// The elements of x where the mask is true: [count], or [size].
Tensor masked_select(const Tensor& x, const Tensor& mask, At at = At::current());
Tensor masked_select(const Tensor& x, const Tensor& mask, int64_t size, double fill = 0,
                     At at = At::current());

// Where x is not 0: a row of rank() numbers for each place, [count, rank] or [size, rank].
Tensor nonzero(const Tensor& x, At at = At::current());
Tensor nonzero(const Tensor& x, int64_t size, double fill = 0, At at = At::current());

}  // namespace outboard
