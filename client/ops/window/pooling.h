// Pools: one number for each window over the last axes of a tensor. The kernel's length says over
// how many; the axes before them stay.
//
//   x [..., D...] -> [..., P...],  P = (D + before + after - dilation * (K - 1) - 1) / stride + 1
//
// With ceil_mode the division rounds up: another window may hang over the end, unless it would
// begin behind the data.
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

// The largest of each window; what is padded is never the largest.
Tensor max_pool(const Tensor& x, const PoolOptions& options = {}, At at = At::current());

// The largest of each window, and where it is.
struct MaxPooled {
  Tensor values;
  Tensor places;  // of i32: the first place of it in the pooled axes, flattened
};
MaxPooled max_pool_with_places(const Tensor& x, const PoolOptions& options = {},
                               At at = At::current());

// The mean of each window. The padding counts as zeros, or with `count_padding` false not at all;
// what hangs over the end in ceil_mode never counts.
Tensor avg_pool(const Tensor& x, const PoolOptions& options = {}, bool count_padding = true,
                At at = At::current());

// Each value of x [B, C, D...] at its place (as max_pool_with_places names them) in zeros of the
// shape [B, C, size...]; several at one place add up. An empty `size` is what a pool with these
// options makes x of: (D - 1) * stride - before - after + dilation * (K - 1) + 1. A place that is
// none is left out.
Tensor max_unpool(const Tensor& x, const Tensor& places, const PoolOptions& options = {},
                  const Dims& size = {}, At at = At::current());

}  // namespace outboard
