#include "client/nn/layers.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "client/ops/reduce/norms.h"

namespace outboard::nn {
namespace {

Tensor Parameter(const Dims& dims, int64_t fan_in, At at) {
  if (fan_in < 1) ThrowInvalid(at, "a layer needs at least one input");
  const double bound = 1 / std::sqrt(static_cast<double>(fan_in));
  return Tensor::uniform(dims, -bound, bound, DType::kF32, at).requires_grad_(true, at);
}

}  // namespace

Linear::Linear(int64_t in, int64_t out, bool with_bias, At at)
    : weight(Parameter({out, in}, in, at)) {
  if (with_bias) bias = Parameter({out}, in, at);
}

Tensor Linear::operator()(const Tensor& x, At at) const {
  return x.linear(weight.transpose(-2, -1, at), bias, at);
}

void Linear::Collect(StateDict& state, const std::string& prefix) const {
  Add(state, prefix, "weight", weight);
  Add(state, prefix, "bias", bias);
}

Conv2d::Conv2d(int64_t in, int64_t out, Size2d kernel, Conv2dOptions opts, bool with_bias, At at)
    : options(opts) {
  if (options.groups < 1 || in % options.groups != 0)
    ThrowInvalid(at, absl::StrCat("Conv2d: ", in, " channels in ", options.groups, " groups"));
  const int64_t fan_in = in / options.groups * kernel.h * kernel.w;
  weight = Parameter({out, in / options.groups, kernel.h, kernel.w}, fan_in, at);
  if (with_bias) bias = Parameter({out}, fan_in, at);
}

Tensor Conv2d::operator()(const Tensor& x, At at) const {
  return x.conv2d(weight, bias, options, at);
}

void Conv2d::Collect(StateDict& state, const std::string& prefix) const {
  Add(state, prefix, "weight", weight);
  Add(state, prefix, "bias", bias);
}

BatchNorm2d::BatchNorm2d(int64_t channels, double eps_in, bool affine, double momentum_in, At at)
    : eps(eps_in), momentum(momentum_in) {
  if (affine) {
    weight = Tensor::ones({channels}, DType::kF32, at).requires_grad_(true, at);
    bias = Tensor::zeros({channels}, DType::kF32, at).requires_grad_(true, at);
  }
  running_mean = Tensor::zeros({channels}, DType::kF32, at).state_(at);
  running_var = Tensor::ones({channels}, DType::kF32, at).state_(at);
}

Tensor BatchNorm2d::operator()(const Tensor& x, At at) const {
  RunningStatistics running = {running_mean, running_var, {}};
  return batch_norm(x, weight, bias, running, momentum, eps, at);
}

void BatchNorm2d::Collect(StateDict& state, const std::string& prefix) const {
  Add(state, prefix, "weight", weight);
  Add(state, prefix, "bias", bias);
  Add(state, prefix, "running_mean", running_mean);
  Add(state, prefix, "running_var", running_var);
}

Embedding::Embedding(int64_t count, int64_t dim, At at) {
  if (count < 1 || dim < 1)
    ThrowInvalid(at, absl::StrCat("Embedding: a table of ", count, " rows of ", dim));
  const double bound = std::sqrt(6 / (static_cast<double>(count) + static_cast<double>(dim)));
  weight = Tensor::uniform({count, dim}, -bound, bound, DType::kF32, at).requires_grad_(true, at);
}

Tensor Embedding::operator()(const Tensor& index, At at) const { return weight.take(index, 0, at); }

void Embedding::Collect(StateDict& state, const std::string& prefix) const {
  Add(state, prefix, "weight", weight);
}

LayerNorm::LayerNorm(int64_t dim_in, double eps_in, bool affine, At at) : dim(dim_in), eps(eps_in) {
  if (dim < 1) ThrowInvalid(at, absl::StrCat("LayerNorm: an axis of ", dim));
  if (!affine) return;
  weight = Tensor::ones({dim}, DType::kF32, at).requires_grad_(true, at);
  bias = Tensor::zeros({dim}, DType::kF32, at).requires_grad_(true, at);
}

Tensor LayerNorm::operator()(const Tensor& x, At at) const {
  if (x.rank(at) == 0 || x.shape(-1, at) != dim)
    ThrowInvalid(at, absl::StrCat("LayerNorm: the last axis of ",
                                  x.rank(at) == 0 ? 0 : x.shape(-1, at), ", not ", dim));
  Tensor y = x.layernorm(-1, eps, at);
  if (!weight.empty()) y = Arg(y, at) * Arg(weight, at);
  return bias.empty() ? y : Arg(y, at) + Arg(bias, at);
}

void LayerNorm::Collect(StateDict& state, const std::string& prefix) const {
  Add(state, prefix, "weight", weight);
  Add(state, prefix, "bias", bias);
}

}  // namespace outboard::nn
