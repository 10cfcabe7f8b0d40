// Tensors of fewer elements: sums, largest ones, means.
#include "client/python/bindings/arguments.h"
#include "client/python/bindings/bindings.h"

namespace outboard::python {
namespace nb = nanobind;
using namespace nb::literals;  // NOLINT
namespace {

using Reduction = Tensor (Tensor::*)(const Axes&, bool, At) const;

template <Reduction function>
Tensor Call(const Tensor& x, const AxisArgument& axis, bool keepdim) {
  return (x.*function)(axis, keepdim, Here());
}

}  // namespace

void BindReduce(nb::module_&, TensorClass& tensor) {
  tensor.def("sum", &Call<&Tensor::sum>, "axis"_a = nb::none(), "keepdim"_a = false)
      .def("prod", &Call<&Tensor::prod>, "axis"_a = nb::none(), "keepdim"_a = false)
      .def("mean", &Call<&Tensor::mean>, "axis"_a = nb::none(), "keepdim"_a = false)
      .def("max", &Call<&Tensor::max>, "axis"_a = nb::none(), "keepdim"_a = false)
      .def("min", &Call<&Tensor::min>, "axis"_a = nb::none(), "keepdim"_a = false)
      .def("any", &Call<&Tensor::any>, "axis"_a = nb::none(), "keepdim"_a = false)
      .def("all", &Call<&Tensor::all>, "axis"_a = nb::none(), "keepdim"_a = false)
      .def(
          "softmax", [](const Tensor& x, int64_t axis) { return x.softmax(axis, Here()); },
          "axis"_a = -1)
      .def(
          "log_softmax", [](const Tensor& x, int64_t axis) { return x.log_softmax(axis, Here()); },
          "axis"_a = -1)
      .def(
          "argmax",
          [](const Tensor& x, std::optional<int64_t> axis, bool keepdim) {
            return axis ? x.argmax(*axis, keepdim, Here()) : x.argmax(Here());
          },
          "axis"_a = nb::none(), "keepdim"_a = false);
}

}  // namespace outboard::python
