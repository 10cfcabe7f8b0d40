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
#pragma once

#include <optional>

#include "client/ops/window/window_options.h"
#include "client/tensor/tensor.h"

namespace outboard {

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

}  // namespace outboard
