// Normalisation, and what the layers of outboard.nn compute that is no method of a tensor.
#include "client/ops/reduce/norms.h"

#include <nanobind/stl/pair.h>

#include <cmath>

#include "client/ops/elementwise/arithmetic.h"
#include "client/ops/product/product.h"
#include "python/bindings/arguments.h"
#include "python/bindings/bindings.h"

namespace outboard::python {
namespace nb = nanobind;
using namespace nb::literals;  // NOLINT
namespace {

using Maybe = std::optional<Tensor>;

Tensor OrEmpty(const Maybe& tensor) { return tensor.value_or(Tensor()); }

// Source: torch.nn.functional.normalize. |x| over `dim` to the power of p, but for 0 (how many are
// not 0) and infinity (the largest).
Tensor Normalize(const Tensor& x, double p, int64_t dim, double eps) {
  const Tensor size = x.abs();
  const Tensor norm = p == 0          ? (x != Arg(0)).sum({dim}, true)
                      : std::isinf(p) ? size.max({dim}, true)
                                      : pow(pow(size, p).sum({dim}, true), 1 / p);
  return x / norm.maximum(eps);
}

void BindLayerFunctions(nb::module_& module) {
  module.def(
      "group_norm",
      [](const Tensor& x, int64_t groups, const Maybe& weight, const Maybe& bias, double eps) {
        return group_norm(x, groups, OrEmpty(weight), OrEmpty(bias), eps);
      },
      "x"_a, "groups"_a, "weight"_a = nb::none(), "bias"_a = nb::none(), "eps"_a = 1e-5,
      TensorClass::OpensLine());
  module.def(
      "rms_norm",
      [](const Tensor& x, const Maybe& weight, double eps) {
        return rms_norm(x, OrEmpty(weight), eps);
      },
      "x"_a, "weight"_a = nb::none(), "eps"_a = 1e-6, TensorClass::OpensLine());
  module.def(
      "batch_norm",
      [](const Tensor& x, const Maybe& weight, const Maybe& bias, const Maybe& running_mean,
         const Maybe& running_var, const Maybe& num_batches_tracked, double momentum, double eps) {
        RunningStatistics running = {OrEmpty(running_mean), OrEmpty(running_var),
                                     OrEmpty(num_batches_tracked)};
        return batch_norm(x, OrEmpty(weight), OrEmpty(bias), running, momentum, eps);
      },
      "x"_a, "weight"_a.none(), "bias"_a.none(), "running_mean"_a.none(), "running_var"_a.none(),
      "num_batches_tracked"_a.none(), "momentum"_a = 0.1, "eps"_a = 1e-5,
      "By the batch's statistics in training, which moves the running ones, else by the running "
      "ones.",
      TensorClass::OpensLine());
  module.def(
      "lstm_cell",
      [](const Tensor& x, const Maybe& hidden, const Maybe& cell, const Tensor& weight_ih,
         const Tensor& weight_hh, const Maybe& bias_ih, const Maybe& bias_hh) {
        const LstmState next =
            lstm_cell(x, {OrEmpty(hidden), OrEmpty(cell)},
                      {weight_ih, weight_hh, OrEmpty(bias_ih), OrEmpty(bias_hh)});
        return std::pair(next.hidden, next.cell);
      },
      "x"_a, "hidden"_a.none(), "cell"_a.none(), "weight_ih"_a, "weight_hh"_a,
      "bias_ih"_a = nb::none(), "bias_hh"_a = nb::none(), TensorClass::OpensLine());
}

}  // namespace

void BindNorms(nb::module_& module, TensorClass& tensor) {
  tensor
      .def("normalize", &Normalize, "p"_a = 2.0, "dim"_a = 1, "eps"_a = 1e-12,
           "Over its p-norm along `dim`, which counts as at least eps.")
      .def(
          "layernorm",
          [](const Tensor& x, const AxisArgument& axis, double eps) {
            return x.layernorm(axis, eps);
          },
          "axis"_a = -1, "eps"_a = 1e-5, "A mean of 0 and a variance of 1 along the axes.")
      .def(
          "batchnorm",
          [](const Tensor& x, const Maybe& weight, const Maybe& bias, const Tensor& mean,
             const Tensor& invstd, const AxisArgument& axis) {
            return x.batchnorm(OrEmpty(weight), OrEmpty(bias), mean, invstd, axis);
          },
          "weight"_a.none(), "bias"_a.none(), "mean"_a, "invstd"_a, "axis"_a = 1,
          "(x - mean) * weight * invstd + bias, all of the lengths of `axis`.");
  BindLayerFunctions(module);
}

}  // namespace outboard::python
