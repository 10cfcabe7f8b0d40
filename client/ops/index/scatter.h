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
#pragma once

#include "client/tensor/tensor.h"

namespace outboard {

// If several elements address one index, the last one is stored.
Tensor scatter(const Tensor& x, int64_t axis, const Tensor& index, const Arg& src);

// How to combine elements for one index. kMean divides, and uses floats for every type.
enum class ScatterReduce { kSum, kProd, kMean, kMax, kMin };

// Combines all elements for one index, including that of x unless `include_self` is off; y has the
// type of x except for kMean.
Tensor scatter_reduce(const Tensor& x, int64_t axis, const Tensor& index, const Arg& src,
                      ScatterReduce how, bool include_self = true);

}  // namespace outboard
