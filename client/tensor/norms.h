// Normalisation: activations brought to a mean of 0 and a variance of 1, or to a mean square of 1.
//
// x [B, C, ...]; weight and bias [C] (of rms_norm: of the last axis), each may be empty. Integers
// become f32 first.
// Errors: INVALID_ARGUMENT where shapes do not fit. Threads: as Tensor.
// See also Tensor::layernorm and Tensor::batchnorm.
#pragma once

#include "client/tensor/tensor.h"

namespace outboard {

// Over each of `groups` parts of the channels, with all that they contain (Wu and He, 2018). As
// many groups as channels: instance normalisation.
Tensor group_norm(const Tensor& x, int64_t groups, const Tensor& weight = {},
                  const Tensor& bias = {}, double eps = 1e-5, At at = At::current());

// x / sqrt(mean of its squares + eps) * weight along the last axis (Zhang and Sennrich, 2019),
// computed in f32 at least and given back in x's own type before the weight is applied.
Tensor rms_norm(const Tensor& x, const Tensor& weight = {}, double eps = 1e-6,
                At at = At::current());

// What batch normalisation brings a batch to: mean and variance (divided by the count) of every
// channel, [C]. The gradient does not take the variance's mean into account, whose part is zero.
struct BatchStatistics {
  Tensor mean, variance;
};
BatchStatistics batch_statistics(const Tensor& x, At at = At::current());

}  // namespace outboard
