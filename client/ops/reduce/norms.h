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

// What batch normalisation remembers of the batches of a training: mean and variance of every
// channel, [C], and of any shape of one element how many batches there were.
struct RunningStatistics {
  Tensor mean, variance;
  Tensor count;  // may be empty
};

// Batch normalisation (Ioffe and Szegedy, 2015): by the statistics of this batch in training, by
// the running ones otherwise, or where these are empty by the batch's in any case. A batch in
// training moves the running ones a share of `momentum` towards its own (the variance of the
// population: n / (n - 1)), as part of the next realize.
Tensor batch_norm(const Tensor& x, const Tensor& weight, const Tensor& bias,
                  RunningStatistics& running, double momentum = 0.1, double eps = 1e-5,
                  At at = At::current());

}  // namespace outboard
