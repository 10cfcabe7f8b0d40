// Running products and extremes along an axis; running sums are Tensor::cumsum.
//
// Shapes: the result has the operand's; a scalar is its own result. A long axis is cut into blocks,
// so that the work is its length times a few hundred. Errors and threads: as tensor.h.
#pragma once

#include "client/tensor/tensor.h"

namespace outboard {

// Element i is the product of those up to i, in the type of x; integers wrap, of bool it is whether
// all are true.
Tensor cumprod(const Tensor& x, int64_t axis, At at = At::current());
// log(cumsum(exp(x))), of floats, without overflow.
Tensor logcumsumexp(const Tensor& x, int64_t axis = 0, At at = At::current());

struct RunningExtreme {
  Tensor values;
  Tensor indices;  // i32: where the value is for the first time
};
RunningExtreme cummax(const Tensor& x, int64_t axis = 0, At at = At::current());
RunningExtreme cummin(const Tensor& x, int64_t axis = 0, At at = At::current());

}  // namespace outboard
