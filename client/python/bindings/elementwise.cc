// Element by element: functions of one tensor, operators of two.
#include <functional>

#include "client/python/bindings/arguments.h"
#include "client/python/bindings/bindings.h"

namespace outboard::python {
namespace nb = nanobind;
using namespace nb::literals;  // NOLINT
namespace {

using Unary = Tensor (Tensor::*)(At) const;

template <Unary function>
Tensor Call(const Tensor& x) {
  return (x.*function)(Here());
}

// Both `a op b` and the reflected form, and the method of that name.
template <typename Function>
void Operator(TensorClass& tensor, const char* name, const char* plain, const char* reflected) {
  tensor
      .def(
          plain,
          [](const Tensor& a, const Operand& b) { return Function()(Arg(a, Here()), *b.arg); },
          nb::is_operator())
      .def(
          reflected,
          [](const Tensor& a, const Operand& b) { return Function()(*b.arg, Arg(a, Here())); },
          nb::is_operator())
      .def(
          name,
          [](const Tensor& a, const Operand& b, bool reverse) {
            return reverse ? Function()(*b.arg, Arg(a, Here()))
                           : Function()(Arg(a, Here()), *b.arg);
          },
          "x"_a, "reverse"_a = false);
}

}  // namespace

void BindElementwise(nb::module_&, TensorClass& tensor) {
  Operator<std::plus<>>(tensor, "add", "__add__", "__radd__");
  Operator<std::minus<>>(tensor, "sub", "__sub__", "__rsub__");
  Operator<std::multiplies<>>(tensor, "mul", "__mul__", "__rmul__");
  Operator<std::divides<>>(tensor, "div", "__truediv__", "__rtruediv__");
  Operator<std::bit_and<>>(tensor, "bitwise_and", "__and__", "__rand__");
  Operator<std::bit_or<>>(tensor, "bitwise_or", "__or__", "__ror__");
  Operator<std::bit_xor<>>(tensor, "bitwise_xor", "__xor__", "__rxor__");
  tensor
      .def(
          "__lt__", [](const Tensor& a, const Operand& b) { return Arg(a, Here()) < *b.arg; },
          nb::is_operator())
      .def(
          "__gt__", [](const Tensor& a, const Operand& b) { return Arg(a, Here()) > *b.arg; },
          nb::is_operator())
      .def(
          "__le__", [](const Tensor& a, const Operand& b) { return Arg(a, Here()) <= *b.arg; },
          nb::is_operator())
      .def(
          "__ge__", [](const Tensor& a, const Operand& b) { return Arg(a, Here()) >= *b.arg; },
          nb::is_operator())
      .def(
          "__eq__", [](const Tensor& a, const Operand& b) { return Arg(a, Here()) == *b.arg; },
          nb::is_operator())
      .def(
          "__ne__", [](const Tensor& a, const Operand& b) { return Arg(a, Here()) != *b.arg; },
          nb::is_operator())
      .def("__hash__",
           [](nb::handle self) { return reinterpret_cast<Py_ssize_t>(self.ptr()) >> 4; })
      .def("__neg__", &Call<&Tensor::neg>)
      .def("exp", &Call<&Tensor::exp>)
      .def("exp2", &Call<&Tensor::exp2>)
      .def("log", &Call<&Tensor::log>)
      .def("log2", &Call<&Tensor::log2>)
      .def("sin", &Call<&Tensor::sin>)
      .def("cos", &Call<&Tensor::cos>)
      .def("tan", &Call<&Tensor::tan>)
      .def("sqrt", &Call<&Tensor::sqrt>)
      .def("rsqrt", &Call<&Tensor::rsqrt>)
      .def("reciprocal", &Call<&Tensor::reciprocal>)
      .def("square", &Call<&Tensor::square>)
      .def("abs", &Call<&Tensor::abs>)
      .def("sign", &Call<&Tensor::sign>)
      .def("trunc", &Call<&Tensor::trunc>)
      .def("floor", &Call<&Tensor::floor>)
      .def("ceil", &Call<&Tensor::ceil>)
      .def("round", &Call<&Tensor::round>)
      .def("relu", &Call<&Tensor::relu>)
      .def("sigmoid", &Call<&Tensor::sigmoid>)
      .def("tanh", &Call<&Tensor::tanh>)
      .def("silu", &Call<&Tensor::silu>)
      .def("gelu", &Call<&Tensor::gelu>)
      .def("logical_not", &Call<&Tensor::logical_not>)
      .def("isnan", &Call<&Tensor::isnan>)
      .def("isfinite", &Call<&Tensor::isfinite>)
      .def(
          "pow", [](const Tensor& x, const Operand& y) { return x.pow(y); }, "x"_a)
      .def(
          "__pow__", [](const Tensor& x, const Operand& y) { return x.pow(y); }, nb::is_operator())
      .def(
          "maximum", [](const Tensor& x, const Operand& y) { return x.maximum(y); }, "x"_a)
      .def(
          "minimum", [](const Tensor& x, const Operand& y) { return x.minimum(y); }, "x"_a)
      .def(
          "where",
          [](const Tensor& x, const Operand& a, const Operand& b) { return x.where(a, b); }, "x"_a,
          "y"_a)
      .def(
          "cast",
          [](const Tensor& x, const DTypeArgument& dtype) {
            return x.cast(dtype.value_or(DType::kF32), Here());
          },
          "dtype"_a)
      .def("float", [](const Tensor& x) { return x.cast(DType::kF32, Here()); });
}

}  // namespace outboard::python
