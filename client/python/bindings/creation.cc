// Tensors from data, numbers and patterns. Random ones: random.cc.
#include <nanobind/ndarray.h>

#include "client/python/bindings/arguments.h"
#include "client/python/bindings/bindings.h"
#include "client/python/bindings/host_data.h"

namespace outboard::python {
namespace nb = nanobind;
using namespace nb::literals;  // NOLINT
namespace {

// There is one device: the session's. The argument is taken so that a tinygrad program runs unchanged.
using DeviceArgument = nb::handle;

Tensor Filled(const Dims& dims, const Operand& value, const DTypeArgument& dtype) {
  const DType type = dtype.value_or(DTypeOfNumber(value));
  return FullOf(dims, *value.arg, type, Here());
}

}  // namespace

void BindCreation(nb::module_&, TensorClass& tensor) {
  tensor
      .def(
          "__init__",
          [](Tensor* self, nb::handle data, DeviceArgument, const DTypeArgument& dtype,
             std::optional<bool> requires_grad) {
            Tensor made = TensorOf(data, dtype.dtype, Here());
            if (requires_grad.value_or(false)) made.requires_grad_(true, Here());
            new (self) Tensor(std::move(made));
          },
          "data"_a.none(), "device"_a = nb::none(), "dtype"_a = nb::none(),
          "requires_grad"_a = nb::none(),
          "From a number, nested lists of numbers, bytes or the path of a file (uint8), a NumPy "
          "array "
          "or whatever speaks DLPack. Large arrays\n"
          "are not copied: they must not change until the tensor was used.")
      .def_static(
          "zeros",
          [](const nb::args& shape, DeviceArgument, const DTypeArgument& dtype) {
            return Tensor::zeros(DimsOf(shape), dtype.value_or(DType::kF32), Here());
          },
          "shape"_a, "device"_a = nb::none(), "dtype"_a = nb::none())
      .def_static(
          "ones",
          [](const nb::args& shape, DeviceArgument, const DTypeArgument& dtype) {
            return Tensor::ones(DimsOf(shape), dtype.value_or(DType::kF32), Here());
          },
          "shape"_a, "device"_a = nb::none(), "dtype"_a = nb::none())
      .def_static(
          "empty",
          [](const nb::args& shape, DeviceArgument, const DTypeArgument& dtype) {
            return Tensor::zeros(DimsOf(shape), dtype.value_or(DType::kF32), Here());
          },
          "shape"_a, "device"_a = nb::none(), "dtype"_a = nb::none(),
          "Zeros: memory has no older content here.")
      .def_static(
          "full",
          [](nb::handle shape, const Operand& fill_value, const DTypeArgument& dtype,
             DeviceArgument, bool) {
            const std::optional<Dims> dims = IntsOf(shape);
            if (!dims) throw nb::type_error("full: the shape is a sequence of ints");
            return Filled(*dims, fill_value, dtype);
          },
          "shape"_a, "fill_value"_a, "dtype"_a = nb::none(), "device"_a = nb::none(),
          "buffer"_a = true)
      .def(
          "full_like",
          [](const Tensor& x, const Operand& fill_value, const DTypeArgument& dtype, DeviceArgument,
             bool) {
            const At at = Here();
            return Filled(x.shape(at), fill_value, {dtype.value_or(x.dtype(at))});
          },
          "fill_value"_a, "dtype"_a = nb::none(), "device"_a = nb::none(), "buffer"_a = true)
      .def(
          "const_like",
          [](const Tensor& x, const Operand& b, const DTypeArgument& dtype) {
            const At at = Here();
            return Filled(x.shape(at), b, {dtype.value_or(x.dtype(at))});
          },
          "b"_a, "dtype"_a = nb::none(), "As full_like.")
      .def(
          "empty_like",
          [](const Tensor& x, const DTypeArgument& dtype, DeviceArgument) {
            const At at = Here();
            return Tensor::zeros(x.shape(at), dtype.value_or(x.dtype(at)), at);
          },
          "dtype"_a = nb::none(), "device"_a = nb::none(),
          "Zeros: memory has no older content here.")
      .def(
          "to", [](const Tensor& x, DeviceArgument) { return x; }, "device"_a.none(),
          "The tensor: a session has one device.")
      .def(
          "to_", [](Tensor& x, DeviceArgument) -> Tensor& { return x; }, "device"_a.none(),
          nb::rv_policy::none)
      .def(
          "zeros_like",
          [](const Tensor& x, const DTypeArgument& dtype, DeviceArgument) {
            const At at = Here();
            return Tensor::zeros(x.shape(at), dtype.value_or(x.dtype(at)), at);
          },
          "dtype"_a = nb::none(), "device"_a = nb::none())
      .def(
          "ones_like",
          [](const Tensor& x, const DTypeArgument& dtype, DeviceArgument) {
            const At at = Here();
            return Tensor::ones(x.shape(at), dtype.value_or(x.dtype(at)), at);
          },
          "dtype"_a = nb::none(), "device"_a = nb::none())
      .def_static(
          "arange",
          [](double start, std::optional<double> stop, double step, const DTypeArgument& dtype,
             DeviceArgument) {
            const At at = Here();
            const double begin = stop ? start : 0, end = stop.value_or(start);
            const bool whole =
                begin == std::trunc(begin) && end == std::trunc(end) && step == std::trunc(step);
            if (!whole) return Arange(begin, end, step, dtype.value_or(DType::kF32), at);
            return Tensor::arange(static_cast<int64_t>(begin), static_cast<int64_t>(end),
                                  static_cast<int64_t>(step), dtype.value_or(DType::kI32), at);
          },
          "start"_a, "stop"_a = nb::none(), "step"_a = 1, "dtype"_a = nb::none(),
          "device"_a = nb::none())
      .def_static(
          "linspace",
          [](double start, double stop, int64_t steps, const DTypeArgument& dtype, DeviceArgument) {
            return Tensor::linspace(start, stop, steps, dtype.value_or(DType::kF32), Here());
          },
          "start"_a, "stop"_a, "steps"_a, "dtype"_a = nb::none(), "device"_a = nb::none())
      .def_static(
          "eye",
          [](int64_t n, std::optional<int64_t> m, const DTypeArgument& dtype, DeviceArgument) {
            const At at = Here();
            const DType type = dtype.value_or(DType::kF32);
            if (!m || *m == n) return Tensor::eye(n, type, at);
            const Tensor rows = Tensor::arange(n, DType::kI32, at).reshape({n, 1}, at);
            return (Arg(rows, at) == Arg(Tensor::arange(*m, DType::kI32, at), at)).cast(type, at);
          },
          "n"_a, "m"_a = nb::none(), "dtype"_a = nb::none(), "device"_a = nb::none())
      .def_static(
          "manual_seed",
          [](int64_t seed) { Tensor::manual_seed(static_cast<uint64_t>(seed), Here()); },
          "seed"_a = 0);
}

}  // namespace outboard::python
