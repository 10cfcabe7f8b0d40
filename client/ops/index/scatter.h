// Elements to places along an axis: the other way of Tensor::gather.
//
// y[index[i, j], j] = src[i, j] for axis 0, and so on; where no index points, y is x.
// Shapes: as many axes of all; the index is nowhere longer than src, and nowhere longer than x but
//         along `axis`. What of src has no index is not used.
// Types:  the index is of integers, negative ones count from the end, one out of range writes
//         nothing; src is a number, or a tensor of the type of x.
// Gradient: to src from where it was written, to x from where it stayed.
// Errors: INVALID_ARGUMENT where shapes or types are not as above.
// Cost:   one comparison for each element of the index and place of the axis.
#pragma once

#include "client/tensor/tensor.h"

namespace outboard {

// Of several elements for one place the last one stays.
Tensor scatter(const Tensor& x, int64_t axis, const Tensor& index, const Arg& src);

// How elements for one place become one. kMean divides, and is of floats for every type.
enum class ScatterReduce { kSum, kProd, kMean, kMax, kMin };

// All elements for one place together, with that of x unless `include_self` is off; y has the type
// of x but for kMean.
Tensor scatter_reduce(const Tensor& x, int64_t axis, const Tensor& index, const Arg& src,
                      ScatterReduce how, bool include_self = true);

}  // namespace outboard
