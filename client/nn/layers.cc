#include "client/nn/layers.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "client/lazy/call_site.h"
#include "client/ops/reduce/norms.h"

namespace outboard::nn {
namespace {

Tensor Parameter(const Dims& dims, int64_t fan_in) {
  if (fan_in < 1) ThrowInvalid("a layer needs at least one input");
  const double bound = 1 / std::sqrt(static_cast<double>(fan_in));
  return Tensor::uniform(dims, -bound, bound).requires_grad_();
}

Tensor Ones(int64_t length) { return Tensor::ones({length}).requires_grad_(); }
Tensor Zeros(int64_t length) { return Tensor::zeros({length}).requires_grad_(); }

}  // namespace

Linear::Linear(int64_t in, int64_t out, bool with_bias, At at) {
  const CallSite site(at);
  weight = Parameter({out, in}, in);
  if (with_bias) bias = Parameter({out}, in);
}

Tensor Linear::operator()(const Tensor& x, At at) const {
  const CallSite site(at);
  return x.linear(weight.transpose(), bias);
}

void Linear::Collect(StateDict& state, const std::string& prefix) const {
  Add(state, prefix, "weight", weight);
  Add(state, prefix, "bias", bias);
}

Conv2d::Conv2d(int64_t in, int64_t out, Size2d kernel, Conv2dOptions opts, bool with_bias, At at)
    : options(opts) {
  const CallSite site(at);
  if (options.groups < 1 || in % options.groups != 0)
    ThrowInvalid(absl::StrCat("Conv2d: ", in, " channels in ", options.groups, " groups"));
  const int64_t fan_in = in / options.groups * kernel.h * kernel.w;
  weight = Parameter({out, in / options.groups, kernel.h, kernel.w}, fan_in);
  if (with_bias) bias = Parameter({out}, fan_in);
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
  const CallSite site(at);
  if (affine) {
    weight = Ones(channels);
    bias = Zeros(channels);
  }
  running_mean = Tensor::zeros({channels}).state_();
  running_var = Tensor::ones({channels}).state_();
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
  const CallSite site(at);
  if (count < 1 || dim < 1)
    ThrowInvalid(absl::StrCat("Embedding: a table of ", count, " rows of ", dim));
  const double bound = std::sqrt(6 / (static_cast<double>(count) + static_cast<double>(dim)));
  weight = Tensor::uniform({count, dim}, -bound, bound).requires_grad_();
}

Tensor Embedding::operator()(const Tensor& index, At at) const { return weight.take(index, 0, at); }

void Embedding::Collect(StateDict& state, const std::string& prefix) const {
  Add(state, prefix, "weight", weight);
}

LayerNorm::LayerNorm(int64_t dim_in, double eps_in, bool affine, At at) : dim(dim_in), eps(eps_in) {
  const CallSite site(at);
  if (dim < 1) ThrowInvalid(absl::StrCat("LayerNorm: an axis of ", dim));
  if (!affine) return;
  weight = Ones(dim);
  bias = Zeros(dim);
}

Tensor LayerNorm::operator()(const Tensor& x, At at) const {
  const CallSite site(at);
  if (x.rank() == 0 || x.shape(-1) != dim)
    ThrowInvalid(absl::StrCat("LayerNorm: the last axis of ", x.rank() == 0 ? 0 : x.shape(-1),
                              ", not ", dim));
  Tensor y = x.layernorm(-1, eps);
  if (!weight.empty()) y = y * weight;
  return bias.empty() ? y : y + bias;
}

void LayerNorm::Collect(StateDict& state, const std::string& prefix) const {
  Add(state, prefix, "weight", weight);
  Add(state, prefix, "bias", bias);
}

}  // namespace outboard::nn
