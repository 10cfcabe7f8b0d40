// Pools: one number per window over the last axes of a tensor. The length of `kernel` is the number
// of pooled axes; the axes before them remain.
//
//   x [..., D...] -> [..., P...],  P = (D + before + after - dilation * (K - 1) - 1) / stride + 1
//
// With ceil_mode the division rounds up: one more window may extend past the end, unless it would
// begin after the data.
//
// Errors: INVALID_ARGUMENT for a kernel that is longer than its padded axis, fewer axes than it
// has, a stride or dilation below 1, and bool for max_unpool.
// Threads: as Tensor.
#pragma once

#include "client/ops/window/window_options.h"
#include "client/tensor/tensor.h"

namespace outboard {

struct PoolOptions {
  Dims kernel = {2, 2};  // one for each axis
  PerAxis stride = {};   // empty: as the kernel
  PerAxis dilation = 1;
  Padding padding = 0;
  bool ceil_mode = false;
};

// The maximum of each window; padding is never the maximum.
Tensor max_pool(const Tensor& x, const PoolOptions& options = {}, At at = At::current());

// The maximum of each window, and its index.
struct MaxPooled {
  Tensor values;
  Tensor places;  // i32: its first index in the pooled axes, flattened
};
MaxPooled max_pool_with_places(const Tensor& x, const PoolOptions& options = {},
                               At at = At::current());

// The mean of each window. Padding counts as zeros, or not at all with `count_padding` false;
// elements past the end in ceil_mode never count.
Tensor avg_pool(const Tensor& x, const PoolOptions& options = {}, bool count_padding = true,
                At at = At::current());

// Each value of x [B, C, D...] at its place (as max_pool_with_places names them) in zeros of the
// shape [B, C, size...]; several at one place add up. An empty `size` is what a pool with these
// options makes x of: (D - 1) * stride - before - after + dilation * (K - 1) + 1. A place that is
// none is left out.
Tensor max_unpool(const Tensor& x, const Tensor& places, const PoolOptions& options = {},
                  const Dims& size = {}, At at = At::current());

}  // namespace outboard
