// Sorts along an axis.
//
// Shapes: values and indices have the shape of x; those of topk have k along the axis. Indices are
// i32.
// Order:  ascending, or descending where asked for; equal elements keep the order that they had, in
//         both directions, so it is what others call a stable sort. NaN counts as larger than
//         everything, as in torch; -0.0 and 0.0 are equal; false < true.
// Gradient: that of the values goes back to the places that they came from.
// Cost:   up to 4,096 elements are compared with each other, in two kernels; longer axes are sorted by
//         O(log(n)^2) rounds of exchanges, two a kernel: a million elements in a tenth of a second on
//         two cores. topk compares within blocks of 2k elements (64 at least), and then among the
//         best of each; with k over 2,048 it sorts.
// Errors: INVALID_ARGUMENT for an axis that is none, a k that is negative or longer than the axis,
//         and sizes of variables.
#pragma once

#include "client/tensor/tensor.h"

namespace outboard {

// The sorted elements, and the index of each in x.
struct Sorted {
  Tensor values, indices;
};

Sorted sort(const Tensor& x, int64_t axis = -1, bool descending = false, At at = At::current());
// Returns the indices alone.
Tensor argsort(const Tensor& x, int64_t axis = -1, bool descending = false, At at = At::current());
// Returns the k largest elements, largest first; or the k smallest, smallest first.
Sorted topk(const Tensor& x, int64_t k, int64_t axis = -1, bool largest = true,
            At at = At::current());

}  // namespace outboard
