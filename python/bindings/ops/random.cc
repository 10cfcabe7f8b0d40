// Random tensors: the library's own generator, the same numbers for a seed on every device. They
// are not tinygrad's numbers for that seed: its counters are another way of using the same
// Threefry.
#include "client/ops/random/random.h"

#include "absl/strings/str_cat.h"
#include "client/ops/elementwise/promote.h"
#include "python/bindings/arguments.h"
#include "python/bindings/bindings.h"
#include "python/bindings/host_data.h"

namespace outboard::python {
namespace nb = nanobind;
using namespace nb::literals;  // NOLINT
namespace {

// Every tensor is contiguous: taken so that a tinygrad program runs unchanged.
using Ignored = nb::handle;

DType FloatType(const DTypeArgument& dtype) { return dtype.value_or(DefaultFloat()); }

// Of floats in their own type; of integers rounded down, as low + (high - low) * rand cast.
Tensor Uniform(const nb::args& shape, double low, double high, const DTypeArgument& dtype,
               DeviceArgument, Ignored) {
  if (!(low < high)) ThrowInvalid(absl::StrCat("uniform: from ", low, " to ", high, " is empty"));
  const DType type = FloatType(dtype);
  if (IsFloat(type)) return Tensor::uniform(DimsOf(shape), low, high, type);
  return Tensor::uniform(DimsOf(shape), low, high, DType::kF64).floor().cast(type);
}

Tensor Randint(const nb::args& shape, int64_t low, int64_t high, const DTypeArgument& dtype,
               DeviceArgument, Ignored) {
  return randint(DimsOf(shape), low, high, dtype.value_or(DefaultInt()));
}

// Of the type of x, unless dtype says another.
DType TypeLike(const Tensor& x, const DTypeArgument& dtype) { return dtype.value_or(x.dtype()); }

Tensor RandnLike(const Tensor& x, const DTypeArgument& dtype, DeviceArgument, Ignored) {
  const DType type = TypeLike(x, dtype);
  return Tensor::randn(x.shape(), IsFloat(type) ? type : DefaultFloat()).cast(type);
}

using Made = Tensor (*)(const Dims&, DType, At);  // at the open line

template <Made make>
Tensor Make(const nb::args& shape, DeviceArgument, const DTypeArgument& dtype, Ignored) {
  return make(DimsOf(shape), FloatType(dtype), At());
}

template <Made make>
void Bind(TensorClass& tensor, const char* name, const char* text) {
  tensor.def_static(name, &Make<make>, "shape"_a, "device"_a = nb::none(), "dtype"_a = nb::none(),
                    "contiguous"_a = true, text);
}

}  // namespace

void BindRandom(nb::module_&, TensorClass& tensor) {
  Bind<&Tensor::rand>(tensor, "rand", "Uniform in [0, 1).");
  Bind<&Tensor::randn>(tensor, "randn", "Normal around 0, with a standard deviation of 1.");
  Bind<&scaled_uniform>(tensor, "scaled_uniform", "Uniform within 1 / sqrt(number of elements).");
  Bind<&glorot_uniform>(tensor, "glorot_uniform",
                        "Uniform within sqrt(6 / (first dimension + product of the others)).");
  tensor
      .def_static("uniform", &Uniform, "shape"_a, "low"_a = 0.0, "high"_a = 1.0,
                  "dtype"_a = nb::none(), "device"_a = nb::none(), "contiguous"_a = true,
                  "Uniform in [low, high).")
      .def_static("randint", &Randint, "shape"_a, "low"_a = 0, "high"_a = 10,
                  "dtype"_a = DType::kI32, "device"_a = nb::none(), "contiguous"_a = true,
                  "Whole numbers, uniform in [low, high).")
      .def_static(
          "normal",
          [](const nb::args& shape, double mean, double std, DeviceArgument,
             const DTypeArgument& dtype,
             Ignored) { return normal(DimsOf(shape), mean, std, FloatType(dtype)); },
          "shape"_a, "mean"_a = 0.0, "std"_a = 1.0, "device"_a = nb::none(), "dtype"_a = nb::none(),
          "contiguous"_a = true,
          "Normal around `mean`, with standard deviation `std`.")
      .def_static(
          "kaiming_uniform",
          [](const nb::args& shape, double a, DeviceArgument, const DTypeArgument& dtype, Ignored) {
            return Tensor::kaiming_uniform(DimsOf(shape), a, FloatType(dtype));
          },
          "shape"_a, "a"_a = 0.01, "device"_a = nb::none(), "dtype"_a = nb::none(),
          "contiguous"_a = true,
          "Uniform within sqrt(6 / ((1 + a^2) * product of all dimensions but the first)).")
      .def_static(
          "kaiming_normal",
          [](const nb::args& shape, double a, DeviceArgument, const DTypeArgument& dtype, Ignored) {
            return kaiming_normal(DimsOf(shape), a, FloatType(dtype));
          },
          "shape"_a, "a"_a = 0.01, "device"_a = nb::none(), "dtype"_a = nb::none(),
          "contiguous"_a = true,
          "Normal, with variance 2 / ((1 + a^2) * product of all dimensions but the first).")
      .def_static(
          "randperm",
          [](int64_t n, DeviceArgument, const DTypeArgument& dtype, Ignored) {
            return randperm(n, dtype.value_or(DefaultInt()));
          },
          "n"_a, "device"_a = nb::none(), "dtype"_a = DType::kI32, "contiguous"_a = true,
          "The numbers 0 to n - 1 in a random order.")
      .def(
          "multinomial",
          [](const Tensor& x, int64_t num_samples, bool replacement) {
            return multinomial(x, num_samples, replacement);
          },
          "num_samples"_a = 1, "replacement"_a = false,
          "Places of [n] or [rows, n] weights, as int32.")
      .def(
          "rand_like",
          [](const Tensor& x, DeviceArgument, const DTypeArgument& dtype, Ignored) {
            return Tensor::rand(x.shape(), TypeLike(x, dtype));
          },
          "device"_a = nb::none(), "dtype"_a = nb::none(), "contiguous"_a = true,
          "Uniform in [0, 1), in the shape of x.")
      .def("randn_like", &RandnLike, "dtype"_a = nb::none(), "device"_a = nb::none(),
           "contiguous"_a = true,
           "Normal around 0 with standard deviation 1, in the shape of x.")
      .def(
          "dropout", [](const Tensor& x, double p) { return x.dropout(p); }, "p"_a = 0.5,
          "Nothing outside of training.");
}

}  // namespace outboard::python
