// Tensors from data, numbers and patterns. Random ones: random.cc.
#include <nanobind/ndarray.h>

#include "client/lazy/node_builder.h"
#include "client/ops/elementwise/promote.h"
#include "python/bindings/arguments.h"
#include "python/bindings/bindings.h"
#include "python/bindings/host_data.h"

namespace outboard::python {
namespace nb = nanobind;
using namespace nb::literals;  // NOLINT
namespace {

Tensor Filled(const SymShape& sizes, const Operand& value, const DTypeArgument& dtype) {
  const DType type = dtype.value_or(DTypeOfNumber(value));
  return FullOf(sizes, *value.arg, type);
}

// Floats if one of them is, as tinygrad; ints are never made floats on their way.
Tensor ArangeOf(const Operand& start, const std::optional<Operand>& stop, const Operand& step,
                const DTypeArgument& dtype) {
  const Arg zero(0);
  const Arg &begin = stop ? *start.arg : zero, &end = stop ? *stop->arg : *start.arg;
  bool has_float = false;
  if (end.kind() == Arg::Kind::kSize && begin.kind() == Arg::Kind::kInt && begin.int_value() == 0 &&
      step.arg->kind() == Arg::Kind::kInt && step.arg->int_value() == 1)
    return Tensor::arange(end.size(), dtype.value_or(DefaultInt()));
  for (const Arg* const number : {&begin, &end, &*step.arg}) {
    if (number->kind() == Arg::Kind::kTensor || number->kind() == Arg::Kind::kSize)
      throw nb::type_error(
          "arange: start, stop and step are numbers; of Variables only the stop, after 0 by 1");
    has_float |= number->kind() == Arg::Kind::kFloat;
  }
  if (has_float)
    return Arange(begin.float_value(), end.float_value(), step.arg->float_value(),
                  dtype.value_or(DefaultFloat()));
  const int64_t by = step.arg->int_value();
  const __int128 first = begin.int_value(), last = __int128{end.int_value()} - by;
  const DType by_default = DefaultInt();
  const bool fits =
      std::min(first, last) >= IntMin(by_default) && std::max(first, last) <= IntMax(by_default);
  const bool is_empty = by > 0 ? first > last : first < last;
  return Tensor::arange(begin.int_value(), end.int_value(), by,
                        dtype.value_or(fits || is_empty ? by_default : DType::kI64));
}

}  // namespace

void BindCreation(nb::module_&, TensorClass& tensor) {
  tensor
      .def(
          "__init__",
          [](Tensor* self, nb::handle data, DeviceArgument, const DTypeArgument& dtype,
             std::optional<bool> requires_grad) {
            Tensor made = TensorOf(data, dtype.given());
            if (requires_grad) {
              // Not of the tensor that it may have been made from.
              const internal::NodeBuilder recorder;
              if (nb::isinstance<Tensor>(data))
                made = Tensor::FromNode(recorder, made.NodeIn(recorder));
              SetRequiresGrad(made, requires_grad);
            }
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
          [](const nb::args& shape, DeviceArgument, const DTypeArgument& dtype, bool) {
            return FullOf(SizesOf(shape), Arg(0), dtype.value_or(DefaultFloat()));
          },
          "shape"_a, "device"_a = nb::none(), "dtype"_a = nb::none(), "buffer"_a = true,
          "Zeros in a shape; of dtypes.default_float unless `dtype` says another type.")
      .def_static(
          "ones",
          [](const nb::args& shape, DeviceArgument, const DTypeArgument& dtype, bool) {
            return FullOf(SizesOf(shape), Arg(1), dtype.value_or(DefaultFloat()));
          },
          "shape"_a, "device"_a = nb::none(), "dtype"_a = nb::none(), "buffer"_a = true,
          "Ones in a shape; of dtypes.default_float unless `dtype` says another type.")
      .def_static(
          "empty",
          [](const nb::args& shape, DeviceArgument, const DTypeArgument& dtype) {
            return FullOf(SizesOf(shape), Arg(0), dtype.value_or(DefaultFloat()));
          },
          "shape"_a, "device"_a = nb::none(), "dtype"_a = nb::none(),
          "Zeros: memory has no older content here.")
      .def_static(
          "full",
          [](nb::handle shape, const Operand& fill_value, const DTypeArgument& dtype,
             DeviceArgument, bool) {
            return Filled(SizesOf(nb::borrow<nb::args>(nb::make_tuple(shape))), fill_value, dtype);
          },
          "shape"_a, "fill_value"_a, "dtype"_a = nb::none(), "device"_a = nb::none(),
          "buffer"_a = true,
          "One value in a shape; of the type of the number unless `dtype` says another.")
      .def(
          "full_like",
          [](const Tensor& x, const Operand& fill_value, const DTypeArgument& dtype, DeviceArgument,
             bool) { return Filled(SizesOfTensor(x), fill_value, {dtype.value_or(x.dtype())}); },
          "fill_value"_a, "dtype"_a = nb::none(), "device"_a = nb::none(), "buffer"_a = true,
          "One value in the shape and type of x.")
      .def(
          "const_like",
          [](const Tensor& x, const Operand& b, const DTypeArgument& dtype) {
            return Filled(SizesOfTensor(x), b, {dtype.value_or(x.dtype())});
          },
          "b"_a, "dtype"_a = nb::none(), "As full_like.")
      .def(
          "empty_like",
          [](const Tensor& x, const DTypeArgument& dtype, DeviceArgument) {
            return Tensor::zeros(SizesOfTensor(x), dtype.value_or(x.dtype()));
          },
          "dtype"_a = nb::none(), "device"_a = nb::none(),
          "Zeros: memory has no older content here.")
      .def(
          "to", [](const Tensor& x, DeviceArgument) { return x; }, "device"_a.none(),
          "The tensor: where it lies is the session's choice.")
      .def(
          "to_", [](Tensor& x, DeviceArgument) -> Tensor& { return x; }, "device"_a.none(),
          nb::rv_policy::none,
          "The tensor itself: where it lies is the session's choice.")
      .def(
          "zeros_like",
          [](const Tensor& x, const DTypeArgument& dtype, DeviceArgument) {
            return Tensor::zeros(SizesOfTensor(x), dtype.value_or(x.dtype()));
          },
          "dtype"_a = nb::none(), "device"_a = nb::none(),
          "Zeros in the shape and type of x.")
      .def(
          "ones_like",
          [](const Tensor& x, const DTypeArgument& dtype, DeviceArgument) {
            return Tensor::ones(SizesOfTensor(x), dtype.value_or(x.dtype()));
          },
          "dtype"_a = nb::none(), "device"_a = nb::none(),
          "Ones in the shape and type of x.")
      .def_static(
          "arange",
          [](const Operand& start, const std::optional<Operand>& stop, const Operand& step,
             const DTypeArgument& dtype,
             DeviceArgument) { return ArangeOf(start, stop, step, dtype); },
          "start"_a, "stop"_a = nb::none(), "step"_a = 1, "dtype"_a = nb::none(),
          "device"_a = nb::none(),
          "Of float32 if one of the numbers is a float, else of int32, or of int64 where that is "
          "too small.")
      .def_static(
          "linspace",
          [](double start, double stop, int64_t steps, const DTypeArgument& dtype, DeviceArgument) {
            return Tensor::linspace(start, stop, steps, dtype.value_or(DefaultFloat()));
          },
          "start"_a, "stop"_a, "steps"_a, "dtype"_a = nb::none(), "device"_a = nb::none(),
          "`steps` numbers from start to stop, ends included, equally far apart.")
      .def_static(
          "eye",
          [](int64_t n, std::optional<int64_t> m, const DTypeArgument& dtype, DeviceArgument) {
            const DType type = dtype.value_or(DefaultFloat());
            if (!m || *m == n) return Tensor::eye(n, type);
            const Tensor rows = Tensor::arange(n, DType::kI32).reshape({n, 1});
            return (rows == Arg(Tensor::arange(*m, DType::kI32))).cast(type);
          },
          "n"_a, "m"_a = nb::none(), "dtype"_a = nb::none(), "device"_a = nb::none(),
          "Ones on the diagonal of [n, n] or [n, m], else zeros.")
      .def_static(
          "manual_seed", [](int64_t seed) { Tensor::manual_seed(static_cast<uint64_t>(seed)); },
          "seed"_a = 0,
          "Sets where random numbers begin. Equal seeds give equal numbers on every device.");
}

}  // namespace outboard::python
