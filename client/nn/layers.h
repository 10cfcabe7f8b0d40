// Layers: a few tensors and a call. Copies share their tensors, as copies of a Tensor do.
//
// Initial values are those of tinygrad's layers: uniform within 1 / sqrt(fan_in); of an Embedding
// within sqrt(6 / (count + dim)).
#pragma once

#include <string>

#include "client/nn/state.h"
#include "client/tensor/tensor.h"

namespace outboard::nn {

// y = x weight^T + bias; weight [out, in].
struct Linear {
  Linear(int64_t in, int64_t out, bool with_bias = true, At at = At::current());
  Tensor operator()(const Tensor& x, At at = At::current()) const;
  void Collect(StateDict& state, const std::string& prefix) const;

  Tensor weight, bias;
};

// [B, in, H, W] -> [B, out, OH, OW]; weight [out, in / groups, kernel.h, kernel.w].
struct Conv2d {
  Conv2d(int64_t in, int64_t out, Size2d kernel, Conv2dOptions options = {}, bool with_bias = true,
         At at = At::current());
  Tensor operator()(const Tensor& x, At at = At::current()) const;
  void Collect(StateDict& state, const std::string& prefix) const;

  Tensor weight, bias;
  Conv2dOptions options;
};

// Normalises axis 1 over all others. In training (TrainingMode) by the batch, and the running mean
// and variance move towards those of the batch by `momentum`; else by the running ones. The new
// running values are part of the next realize.
struct BatchNorm2d {
  explicit BatchNorm2d(int64_t channels, double eps = 1e-5, bool affine = true,
                       double momentum = 0.1, At at = At::current());
  Tensor operator()(const Tensor& x, At at = At::current()) const;
  void Collect(StateDict& state, const std::string& prefix) const;

  double eps, momentum;
  Tensor weight, bias;  // empty without `affine`
  mutable Tensor running_mean, running_var;
};

// The rows of a table that integers name: [...] -> [..., dim]; weight [count, dim].
struct Embedding {
  Embedding(int64_t count, int64_t dim, At at = At::current());
  Tensor operator()(const Tensor& index, At at = At::current()) const;
  void Collect(StateDict& state, const std::string& prefix) const;

  Tensor weight;
};

// Normalises the last axis, of length `dim`: (x - mean) / sqrt(variance + eps) * weight + bias.
struct LayerNorm {
  explicit LayerNorm(int64_t dim, double eps = 1e-5, bool affine = true, At at = At::current());
  Tensor operator()(const Tensor& x, At at = At::current()) const;
  void Collect(StateDict& state, const std::string& prefix) const;

  int64_t dim;
  double eps;
  Tensor weight, bias;  // empty without `affine`
};

}  // namespace outboard::nn
