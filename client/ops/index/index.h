// Selection of elements by mask and by index, sorting and ranking: what goes beyond Tensor's
// operator[] and gather.
#pragma once

#include "client/tensor/tensor.h"

namespace outboard {

// Selects and replaces elements by a bool mask.
//
// A mask broadcasts to the shape of x. The number of true elements is known in the cloud only:
// without `size` these functions fetch it, which sends the recorded graph and waits. With `size`
// they do not wait: the first `size` elements count, and missing ones are `fill`.
// Order:    row-major. Indices are i32.
// Gradient: to the selected elements.
// Errors:   INVALID_ARGUMENT for a mask of another type, shapes that do not broadcast, a negative
//           size.

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

// Writes elements to indices along an axis: the inverse of Tensor::gather.
//
// y[index[i, j], j] = src[i, j] for axis 0, and so on; elements of y without an index are those of
// x.
// Shapes: all have the same rank; the index is nowhere longer than src, and nowhere longer than x
//         but along `axis`. Elements of src without an index are not used.
// Types:  the index is of integers; negative ones count from the end, one out of range writes
//         nothing; src is a number, or a tensor of the type of x.
// Gradient: to the elements of src that were written, and of x that remain.
// Errors: INVALID_ARGUMENT where shapes or types are not as above.
// Cost:   one comparison for each pair of an element of the index and an index of the axis.

// If several elements address one index, the last one is stored.
Tensor scatter(const Tensor& x, int64_t axis, const Tensor& index, const Arg& src);

// How to combine elements for one index. kMean divides, and uses floats for every type.
enum class ScatterReduce { kSum, kProd, kMean, kMax, kMin };

// Combines all elements for one index, including that of x unless `include_self` is off; y has the
// type of x except for kMean.
Tensor scatter_reduce(const Tensor& x, int64_t axis, const Tensor& index, const Arg& src,
                      ScatterReduce how, bool include_self = true);

// Sorts along an axis.
//
// Shapes: values and indices have the shape of x; those of topk have k along the axis. Indices are
// i32.
// Order:  ascending, or descending where asked for; equal elements keep the order that they had, in
//         both directions, so it is what others call a stable sort. NaN counts as larger than
//         everything, as in torch; -0.0 and 0.0 are equal; false < true.
// Gradient: that of the values goes back to the places that they came from.
// Cost:   up to 4,096 elements are compared with each other, in two kernels; longer axes are sorted
//         by O(log(n)^2) rounds of exchanges, two a kernel: a million elements in a tenth of a
//         second on two cores. topk compares within blocks of 2k elements (64 at least), and then
//         among the best of each; with k over 2,048 it sorts.
// Errors: INVALID_ARGUMENT for an axis that is none, a k that is negative or longer than the axis,
//         and sizes of variables.

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
