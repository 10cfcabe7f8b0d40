// Selects and replaces elements by a bool mask.
//
// A mask broadcasts to the shape of x. The number of true elements is known in the cloud only:
// without `size` these functions fetch it, which sends the recorded graph and waits. With `size`
// they do not wait: the first `size` elements count, and missing ones are `fill`.
// Order:    row-major. Indices are i32.
// Gradient: to the selected elements.
// Errors:   INVALID_ARGUMENT for a mask of another type, shapes that do not broadcast, a negative
//           size.
#pragma once

#include "client/tensor/tensor.h"

namespace outboard {

// Returns mask ? value : x; all broadcast, and x and value promote.
Tensor masked_fill(const Tensor& x, const Tensor& mask, const Arg& value);

// The elements of x where the mask is true: [count], or [size].
Tensor masked_select(const Tensor& x, const Tensor& mask, At at = At::current());
Tensor masked_select(const Tensor& x, const Tensor& mask, int64_t size, double fill = 0,
                     At at = At::current());

// Returns the positions where x is not 0: a row of rank() indices each, [count, rank] or [size,
// rank].
Tensor nonzero(const Tensor& x, At at = At::current());
Tensor nonzero(const Tensor& x, int64_t size, double fill = 0, At at = At::current());

}  // namespace outboard
