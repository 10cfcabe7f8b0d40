// Element by element: functions of one tensor.
#include "client/ops/elementwise/activations.h"
#include "client/ops/elementwise/arithmetic.h"
#include "client/ops/elementwise/transcendental.h"
#include "python/bindings/arguments.h"
#include "python/bindings/bindings.h"

namespace outboard::python {
namespace nb = nanobind;
using namespace nb::literals;  // NOLINT
namespace {

template <auto function>
Tensor Call(const Tensor& x) {
  if constexpr (std::is_member_function_pointer_v<decltype(function)>)
    return (x.*function)(At());
  else
    return function(x, At());
}

template <DType dtype>
Tensor CastTo(const Tensor& x) {
  return x.cast(dtype);
}

Tensor Gelu(const Tensor& x, const std::string& approximate) {
  if (approximate == "tanh") return x.gelu();
  if (approximate == "none") return gelu_erf(x);
  ThrowInvalid("gelu: approximate is 'tanh' or 'none', not '" + approximate + "'");
}

// -x of bool is its other truth value.
Tensor Neg(const Tensor& x) { return IsBool(x.dtype()) ? x.logical_not() : x.neg(); }

void BindFunctions(TensorClass& tensor) {
  tensor.def("exp", &Call<&Tensor::exp>)
      .def("exp2", &Call<&Tensor::exp2>)
      .def("log", &Call<&Tensor::log>)
      .def("log2", &Call<&Tensor::log2>)
      .def("log10", &Call<&outboard::log10>)
      .def("sin", &Call<&Tensor::sin>)
      .def("cos", &Call<&Tensor::cos>)
      .def("tan", &Call<&Tensor::tan>)
      .def("asin", &Call<&outboard::asin>)
      .def("acos", &Call<&outboard::acos>)
      .def("atan", &Call<&outboard::atan>)
      .def("sinh", &Call<&outboard::sinh>)
      .def("cosh", &Call<&outboard::cosh>)
      .def("tanh", &Call<&Tensor::tanh>)
      .def("asinh", &Call<&outboard::asinh>)
      .def("acosh", &Call<&outboard::acosh>)
      .def("atanh", &Call<&outboard::atanh>)
      .def("erf", &Call<&outboard::erf>)
      .def("sqrt", &Call<&Tensor::sqrt>)
      .def("rsqrt", &Call<&Tensor::rsqrt>)
      .def("reciprocal", &Call<&Tensor::reciprocal>)
      .def("square", &Call<&Tensor::square>)
      .def("abs", &Call<&Tensor::abs>)
      .def("sign", &Call<&Tensor::sign>)
      .def("trunc", &Call<&Tensor::trunc>)
      .def("floor", &Call<&Tensor::floor>)
      .def("ceil", &Call<&Tensor::ceil>)
      .def("round", &Call<&Tensor::round>, "Halves to the even neighbour.")
      .def("neg", &Neg)
      .def("__neg__", &Neg)
      .def("logical_not", &Call<&Tensor::logical_not>)
      .def("bitwise_not", &Call<&bitwise_not>, "Of integers and bool.")
      .def("__invert__", &Call<&bitwise_not>)
      .def("isnan", &Call<&Tensor::isnan>)
      .def("isfinite", &Call<&Tensor::isfinite>)
      .def(
          "isinf",
          [](const Tensor& x, bool detect_positive, bool detect_negative) {
            return outboard::isinf(x, detect_positive, detect_negative);
          },
          "detect_positive"_a = true, "detect_negative"_a = true);
}

void BindActivations(TensorClass& tensor) {
  tensor.def("relu", &Call<&Tensor::relu>)
      .def("relu6", &Call<&relu6>)
      .def("sigmoid", &Call<&Tensor::sigmoid>)
      .def("silu", &Call<&Tensor::silu>)
      .def("swish", &Call<&Tensor::silu>, "Another name of silu.")
      .def("gelu", &Gelu, "approximate"_a = "tanh", "With approximate='none' by erf.")
      .def("quick_gelu", &Call<&quick_gelu>)
      .def("mish", &Call<&mish>)
      .def("logsigmoid", &Call<&logsigmoid>)
      .def("softsign", &Call<&softsign>)
      .def("hardswish", &Call<&hardswish>)
      .def(
          "softplus", [](const Tensor& x, double beta) { return softplus(x, beta); },
          "beta"_a = 1.0)
      .def(
          "hardsigmoid",
          [](const Tensor& x, double alpha, double beta) { return hardsigmoid(x, alpha, beta); },
          "alpha"_a = 1.0 / 6, "beta"_a = 0.5)
      .def(
          "hardtanh",
          [](const Tensor& x, const Operand& min_val, const Operand& max_val) {
            return x.clip(min_val, max_val);
          },
          "min_val"_a = -1, "max_val"_a = 1)
      .def(
          "leaky_relu", [](const Tensor& x, double neg_slope) { return x.leaky_relu(neg_slope); },
          "neg_slope"_a = 0.01)
      .def(
          "elu", [](const Tensor& x, double alpha) { return x.elu(alpha); }, "alpha"_a = 1.0)
      .def(
          "celu", [](const Tensor& x, double alpha) { return celu(x, alpha); }, "alpha"_a = 1.0)
      .def(
          "selu", [](const Tensor& x, double alpha, double gamma) { return selu(x, alpha, gamma); },
          "alpha"_a = 1.67326, "gamma"_a = 1.0507);
}

void BindTypes(TensorClass& tensor) {
  tensor
      .def(
          "cast",
          [](const Tensor& x, const DTypeArgument& dtype) {
            return x.cast(dtype.value_or(x.dtype()));
          },
          "dtype"_a)
      .def(
          "bitcast",
          [](const Tensor& x, const DTypeArgument& dtype) {
            return x.bitcast(dtype.value_or(x.dtype()));
          },
          "dtype"_a, "The same bits. To another width the last axis becomes longer or shorter.")
      .def("float", &CastTo<DType::kF32>)
      .def("half", &CastTo<DType::kF16>)
      .def("bfloat16", &CastTo<DType::kBF16>)
      .def("double", &CastTo<DType::kF64>)
      .def("int", &CastTo<DType::kI32>)
      .def("long", &CastTo<DType::kI64>)
      .def("short", &CastTo<DType::kI16>)
      .def("bool", &CastTo<DType::kBool>)
      .def("is_floating_point", [](const Tensor& x) { return IsFloat(x.dtype()); })
      .def("element_size", [](const Tensor& x) { return ByteWidth(x.dtype()); })
      .def("nbytes", [](const Tensor& x) { return x.numel() * ByteWidth(x.dtype()); });
}

}  // namespace

void BindElementwise(nb::module_&, TensorClass& tensor) {
  BindFunctions(tensor);
  BindActivations(tensor);
  BindTypes(tensor);
}

}  // namespace outboard::python
