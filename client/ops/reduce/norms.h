// Normalisation: scales activations to a mean of 0 and a variance of 1, or to a mean square of 1.
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

// The batch statistics of batch normalisation: mean and variance (divided by the count) per
// channel, [C]. The gradient ignores the derivative of the variance with respect to the mean, which
// is zero.
struct BatchStatistics {
  Tensor mean, variance;
};
BatchStatistics batch_statistics(const Tensor& x, At at = At::current());

// The running statistics of batch normalisation: mean and variance per channel, [C], and, in a
// tensor of one element of any shape, the number of batches.
struct RunningStatistics {
  Tensor mean, variance;
  Tensor count;  // may be empty
};

// Batch normalisation (Ioffe and Szegedy, 2015): with the statistics of this batch in training,
// else with the running ones, or with the batch's if these are empty. In training, a batch moves
// the running ones by a fraction `momentum` towards its own (with the population variance: n / (n -
// 1)), as part of the next realize.
Tensor batch_norm(const Tensor& x, const Tensor& weight, const Tensor& bias,
                  RunningStatistics& running, double momentum = 0.1, double eps = 1e-5,
                  At at = At::current());

}  // namespace outboard
