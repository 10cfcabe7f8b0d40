// Convolutions, pools and resizing over the last axes of a tensor: one, two, three or more
// dimensions.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <utility>
#include <vector>

#include "client/tensor/tensor.h"

namespace outboard {

// How a window moves along the axes that it slides over: options of convolutions
// and pools over any number of axes, as one number for all axes or one per axis.
//
//   {.stride = 2}                       every second place, along every axis
//   {.stride = {2, 1}}                  every second row, every column
//   {.padding = {1, 0}}                 a row of zeros above and one below
//   {.padding = {{0, 1}, {2, 2}}}       a row below, two columns on either side
//
// A count that is neither one nor that of the axes is INVALID_ARGUMENT of the function that takes
// it.

// One number for all axes of a window, or one for each, from the first to the last.
struct PerAxis : std::vector<int64_t> {
  PerAxis() = default;
  PerAxis(int64_t all) : std::vector<int64_t>{all} {}                                  // NOLINT
  PerAxis(std::initializer_list<int64_t> numbers) : std::vector<int64_t>(numbers) {}   // NOLINT
  PerAxis(std::vector<int64_t> numbers) : std::vector<int64_t>(std::move(numbers)) {}  // NOLINT
};

// Zeros before and after each axis: one number for all sides, one for each axis, or {before, after}
// of each axis. A negative number cuts as much off.
struct Padding : std::vector<std::pair<int64_t, int64_t>> {
  using Side = std::pair<int64_t, int64_t>;

  Padding(int64_t all = 0) : std::vector<Side>{{all, all}} {}                // NOLINT
  Padding(std::initializer_list<int64_t> both) : Padding(PerAxis(both)) {}   // NOLINT
  Padding(std::initializer_list<Side> sides) : std::vector<Side>(sides) {}   // NOLINT
  Padding(std::vector<Side> sides) : std::vector<Side>(std::move(sides)) {}  // NOLINT
  Padding(const PerAxis& both) {                                             // NOLINT
    for (const int64_t number : both) emplace_back(number, number);
  }
};

// Convolutions over any number of axes, and their transposes.
//
//   x [B, C, D...] with weight [O, C / groups, K...] and bias [O]  ->  [B, O, P...]
//   P = (D + before + after - dilation * (K - 1) - 1) / stride + 1
//
// Every output channel sees the channels of its group; `K...` may be any number of axes, at least
// one. Operands promote; floats of less than 32 bits are added up in f32.
//
// Errors: INVALID_ARGUMENT for ranks, channels or groups that do not fit, a kernel that is longer
// than its padded axis, a stride or dilation below 1, and bool.
// Threads: as Tensor.

struct ConvolutionOptions {
  int64_t groups = 1;
  PerAxis stride = 1;
  PerAxis dilation = 1;
  Padding padding = 0;
  std::optional<DType> dtype = {};  // of the sums and the result, instead of the operands'
};

Tensor convolution(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
                   const ConvolutionOptions& options = {}, At at = At::current());

struct TransposedConvolutionOptions {
  int64_t groups = 1;
  PerAxis stride = 1;
  PerAxis dilation = 1;
  Padding padding = 0;         // elements removed from the result
  PerAxis output_padding = 0;  // elements added at its end
};

// What takes the result of a convolution with these options back to the shape of its input, as its
// gradient does. weight [C, O / groups, K...]; D becomes
//   (D - 1) * stride - before - after + dilation * (K - 1) + 1 + output_padding.
Tensor transposed_convolution(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
                              const TransposedConvolutionOptions& options = {},
                              At at = At::current());

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

// Resizing: the last axes of a tensor brought to another length by interpolation.
//
//   x [..., D...] -> [..., size...]
//
// linear: between the two nearest elements of each axis, where element i of n covers the stretch
// from i / n to (i + 1) / n, or with align_corners lies at i / (n - 1). nearest: the element that
// floor(i * D / size) names; nearest_exact: the one that the middle of i falls into.
//
// The result has the type of x: between integers is rounded towards zero, but for u8, which is
// mostly pictures, to the nearest.
// Errors: INVALID_ARGUMENT for a size of no axes, of more than x has, or below 1, and align_corners
// with another mode than linear.
// Threads: as Tensor.

// What a place between two elements takes: of both by distance, the one below as PyTorch's
// "nearest" rounds, or the nearest one.
enum class Interpolation { kLinear, kNearest, kNearestExact };

Tensor interpolate(const Tensor& x, const Dims& size, Interpolation mode = Interpolation::kLinear,
                   bool align_corners = false, At at = At::current());

}  // namespace outboard
