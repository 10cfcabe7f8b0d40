// Tensors of fewer elements: sums, largest ones, means; and what runs along an axis.
#include "client/ops/elementwise/activations.h"
#include "client/ops/reduce/scans.h"
#include "python/bindings/arguments.h"
#include "python/bindings/bindings.h"

namespace outboard::python {
namespace nb = nanobind;
using namespace nb::literals;  // NOLINT
namespace {

// Over no axes where they are (): one of length 1 in front.
template <typename Function>
Tensor Over(const Tensor& x, const AxisArgument& axis, bool keepdim, const Function& function) {
  if (axis.given && axis.axes.empty()) return function(x.unsqueeze(0), Axes(0), false);
  return function(x, axis.axes, keepdim);
}

using Reduction = Tensor (Tensor::*)(const Axes&, bool, At) const;

template <Reduction reduction>
Tensor Call(const Tensor& x, const AxisArgument& axis, bool keepdim) {
  return Over(x, axis, keepdim, [&](const Tensor& of, const Axes& axes, bool keep) {
    return (of.*reduction)(axes, keep, At());
  });
}

// With dtype=: of that type, in which it is added up. Floats of less than 32 bits are added up in
// f32 all the same.
Tensor Sum(const Tensor& x, const AxisArgument& axis, bool keepdim, const DTypeArgument& dtype) {
  if (!dtype.given()) return Call<&Tensor::sum>(x, axis, keepdim);
  return Call<&Tensor::sum>(x.cast(*dtype.given()), axis, keepdim).cast(*dtype.given());
}

// Of the type of x, also where that is of few bits: a product wraps in any width.
Tensor Prod(const Tensor& x, const AxisArgument& axis, bool keepdim, const DTypeArgument& dtype) {
  const DType type = dtype.value_or(x.dtype());
  return Call<&Tensor::prod>(x.cast(type), axis, keepdim).cast(type);
}

using Spread = Tensor (Tensor::*)(const Axes&, bool, int64_t, At) const;

template <Spread spread>
Tensor CallSpread(const Tensor& x, const AxisArgument& axis, bool keepdim, int64_t correction) {
  return Over(x, axis, keepdim, [&](const Tensor& of, const Axes& axes, bool keep) {
    return (of.*spread)(axes, keep, correction, At());
  });
}

template <Spread spread>
nb::tuple WithMean(const Tensor& x, const AxisArgument& axis, bool keepdim, int64_t correction) {
  return nb::make_tuple(CallSpread<spread>(x, axis, keepdim, correction),
                        Call<&Tensor::mean>(x, axis, keepdim));
}

Tensor Argmax(const Tensor& x, std::optional<int64_t> axis, bool keepdim) {
  return axis ? x.argmax(*axis, keepdim) : x.argmax();
}

Tensor Argmin(const Tensor& x, std::optional<int64_t> axis, bool keepdim) {
  return axis ? x.argmin(*axis, keepdim) : x.flatten(0, -1).argmin(0, false);
}

using Normalised = Tensor (Tensor::*)(const Axes&, At) const;

// In `dtype` where it is given.
Tensor InType(const Tensor& x, const DTypeArgument& dtype) {
  return dtype.given() ? x.cast(*dtype.given()) : x;
}

template <Normalised function>
Tensor CallNormalised(const Tensor& x, const AxisArgument& axis, const DTypeArgument& dtype) {
  return (InType(x, dtype).*function)(axis, At());
}

template <RunningExtreme (*function)(const Tensor&, int64_t, At)>
nb::tuple CallExtreme(const Tensor& x, int64_t axis) {
  const RunningExtreme extreme = function(x, axis, At());
  return nb::make_tuple(extreme.values, extreme.indices);
}

}  // namespace

void BindReduce(nb::module_&, TensorClass& tensor) {
  const auto all = nb::none();  // axes
  tensor
      .def("sum", &Sum, "axis"_a = all, "keepdim"_a = false, "dtype"_a = nb::none(),
           "Integers of less than 32 bits and bool give int32 or uint32.")
      .def("prod", &Prod, "axis"_a = all, "keepdim"_a = false, "dtype"_a = nb::none(),
           "The product over the axes (all without `axis`), in the type of x or `dtype`; "
           "integers wrap.")
      .def("mean", &Call<&Tensor::mean>, "axis"_a = all, "keepdim"_a = false,
           "The mean over the axes (all without `axis`), a float.")
      .def("max", &Call<&Tensor::max>, "axis"_a = all, "keepdim"_a = false,
           "The largest over the axes (all without `axis`); NaN where there is one.")
      .def("min", &Call<&Tensor::min>, "axis"_a = all, "keepdim"_a = false,
           "The smallest over the axes (all without `axis`); NaN where there is one.")
      .def("any", &Call<&Tensor::any>, "axis"_a = all, "keepdim"_a = false,
           "Whether one over the axes (all without `axis`) is not 0, as bool.")
      .def("all", &Call<&Tensor::all>, "axis"_a = all, "keepdim"_a = false,
           "Whether none over the axes (all without `axis`) is 0, as bool.")
      .def("var", &CallSpread<&Tensor::var>, "axis"_a = all, "keepdim"_a = false,
           "correction"_a = 1,
           "The variance over the axes (all without `axis`), divided by count - correction.")
      .def("std", &CallSpread<&Tensor::std>, "axis"_a = all, "keepdim"_a = false,
           "correction"_a = 1,
           "The square root of the variance over the axes, divided by count - correction.")
      .def("var_mean", &WithMean<&Tensor::var>, "axis"_a = all, "keepdim"_a = false,
           "correction"_a = 1,
           "(var, mean) over the axes.")
      .def("std_mean", &WithMean<&Tensor::std>, "axis"_a = all, "keepdim"_a = false,
           "correction"_a = 1,
           "(std, mean) over the axes.")
      .def("argmax", &Argmax, "axis"_a = all, "keepdim"_a = false,
           "The first place of the largest, as int32; without an axis in the flattened tensor.")
      .def("argmin", &Argmin, "axis"_a = all, "keepdim"_a = false,
           "The first place of the smallest, as int32; without an axis in the flattened tensor.")
      .def("logsumexp", &Call<&Tensor::logsumexp>, "axis"_a = all, "keepdim"_a = false,
           "log(sum(exp(x))) over the axes, without overflow.")
      .def("softmax", &CallNormalised<&Tensor::softmax>, "axis"_a.none() = -1,
           "dtype"_a = nb::none(),
           "exp(x) / sum(exp(x)) over the axis, in `dtype` if it is given.")
      .def("log_softmax", &CallNormalised<&Tensor::log_softmax>, "axis"_a.none() = -1,
           "dtype"_a = nb::none(),
           "log(softmax(x)) over the axis, without overflow.")
      .def(
          "softmin",
          [](const Tensor& x, const AxisArgument& axis, const DTypeArgument& dtype) {
            return softmin(InType(x, dtype), axis);
          },
          "axis"_a.none() = -1, "dtype"_a = nb::none(),
          "softmax(-x).")
      .def(
          "cumsum", [](const Tensor& x, int64_t axis) { return x.cumsum(axis); }, "axis"_a = 0,
          "Element i is the sum of those up to i along the axis.")
      .def(
          "cumprod", [](const Tensor& x, int64_t axis) { return cumprod(x, axis); }, "axis"_a,
          "Element i is the product of those up to i along the axis; integers wrap.")
      .def(
          "logcumsumexp", [](const Tensor& x, int64_t axis) { return logcumsumexp(x, axis); },
          "axis"_a = 0,
          "log(cumsum(exp(x))) along the axis, without overflow.")
      .def("cummax", &CallExtreme<&cummax>, "axis"_a = 0,
           "Values, and where each is first (int32).")
      .def("cummin", &CallExtreme<&cummin>, "axis"_a = 0,
           "Values, and where each is first (int32).");
}

}  // namespace outboard::python
