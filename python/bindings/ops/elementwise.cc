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
  tensor.def("exp", &Call<&Tensor::exp>, "e^x.")
      .def("exp2", &Call<&Tensor::exp2>, "2^x.")
      .def("log", &Call<&Tensor::log>, "The natural logarithm; NaN below 0.")
      .def("log2", &Call<&Tensor::log2>, "The logarithm to base 2; NaN below 0.")
      .def("log10", &Call<&outboard::log10>, "The logarithm to base 10; NaN below 0.")
      .def("sin", &Call<&Tensor::sin>, "The sine of radians.")
      .def("cos", &Call<&Tensor::cos>, "The cosine of radians.")
      .def("tan", &Call<&Tensor::tan>, "The tangent of radians.")
      .def("asin", &Call<&outboard::asin>,
           "The inverse of sin, in radians; NaN outside of [-1, 1].")
      .def("acos", &Call<&outboard::acos>,
           "The inverse of cos, in radians; NaN outside of [-1, 1].")
      .def("atan", &Call<&outboard::atan>, "The inverse of tan, in radians.")
      .def("sinh", &Call<&outboard::sinh>, "(e^x - e^-x) / 2.")
      .def("cosh", &Call<&outboard::cosh>, "(e^x + e^-x) / 2.")
      .def("tanh", &Call<&Tensor::tanh>, "sinh(x) / cosh(x).")
      .def("asinh", &Call<&outboard::asinh>, "The inverse of sinh.")
      .def("acosh", &Call<&outboard::acosh>, "The inverse of cosh; NaN below 1.")
      .def("atanh", &Call<&outboard::atanh>, "The inverse of tanh; NaN outside of [-1, 1].")
      .def("erf", &Call<&outboard::erf>, "The error function.")
      .def("sqrt", &Call<&Tensor::sqrt>, "The square root; NaN below 0.")
      .def("rsqrt", &Call<&Tensor::rsqrt>, "1 / sqrt(x).")
      .def("reciprocal", &Call<&Tensor::reciprocal>, "1 / x.")
      .def("square", &Call<&Tensor::square>, "x * x.")
      .def("abs", &Call<&Tensor::abs>, "The absolute value.")
      .def("sign", &Call<&Tensor::sign>, "-1, 0 or 1, in the type of x.")
      .def("trunc", &Call<&Tensor::trunc>, "The whole number next to x, towards 0.")
      .def("floor", &Call<&Tensor::floor>, "The largest whole number that is not above x.")
      .def("ceil", &Call<&Tensor::ceil>, "The smallest whole number that is not below x.")
      .def("round", &Call<&Tensor::round>, "Halves to the even neighbour.")
      .def("neg", &Neg, "-x; of bool its other truth value.")
      .def("__neg__", &Neg)
      .def("logical_not", &Call<&Tensor::logical_not>, "Whether x is 0, as bool.")
      .def("bitwise_not", &Call<&bitwise_not>, "Of integers and bool.")
      .def("__invert__", &Call<&bitwise_not>)
      .def("isnan", &Call<&Tensor::isnan>, "Whether x is NaN, as bool.")
      .def("isfinite", &Call<&Tensor::isfinite>, "Whether x is neither infinite nor NaN, as bool.")
      .def(
          "isinf",
          [](const Tensor& x, bool detect_positive, bool detect_negative) {
            return outboard::isinf(x, detect_positive, detect_negative);
          },
          "detect_positive"_a = true, "detect_negative"_a = true,
          "Whether x is infinite, with a sign that is asked for, as bool.");
}

void BindActivations(TensorClass& tensor) {
  tensor.def("relu", &Call<&Tensor::relu>, "max(x, 0).")
      .def("relu6", &Call<&relu6>, "min(max(x, 0), 6).")
      .def("sigmoid", &Call<&Tensor::sigmoid>, "1 / (1 + e^-x).")
      .def("silu", &Call<&Tensor::silu>, "x * sigmoid(x).")
      .def("swish", &Call<&Tensor::silu>, "Another name of silu.")
      .def("gelu", &Gelu, "approximate"_a = "tanh", "With approximate='none' by erf.")
      .def("quick_gelu", &Call<&quick_gelu>, "x * sigmoid(1.702 x).")
      .def("mish", &Call<&mish>, "x * tanh(softplus(x)).")
      .def("logsigmoid", &Call<&logsigmoid>, "log(sigmoid(x)), without overflow.")
      .def("softsign", &Call<&softsign>, "x / (1 + |x|).")
      .def("hardswish", &Call<&hardswish>, "x * relu6(x + 3) / 6.")
      .def(
          "softplus", [](const Tensor& x, double beta) { return softplus(x, beta); },
          "beta"_a = 1.0,
          "log(1 + e^(beta x)) / beta, without overflow.")
      .def(
          "hardsigmoid",
          [](const Tensor& x, double alpha, double beta) { return hardsigmoid(x, alpha, beta); },
          "alpha"_a = 1.0 / 6, "beta"_a = 0.5,
          "alpha x + beta, within [0, 1].")
      .def(
          "hardtanh",
          [](const Tensor& x, const Operand& min_val, const Operand& max_val) {
            return x.clip(min_val, max_val);
          },
          "min_val"_a = -1, "max_val"_a = 1,
          "x, within [min_val, max_val].")
      .def(
          "leaky_relu", [](const Tensor& x, double neg_slope) { return x.leaky_relu(neg_slope); },
          "neg_slope"_a = 0.01,
          "x where it is above 0, else neg_slope * x.")
      .def(
          "elu", [](const Tensor& x, double alpha) { return x.elu(alpha); }, "alpha"_a = 1.0,
          "x where it is above 0, else alpha * (e^x - 1).")
      .def(
          "celu", [](const Tensor& x, double alpha) { return celu(x, alpha); }, "alpha"_a = 1.0,
          "x where it is above 0, else alpha * (e^(x / alpha) - 1).")
      .def(
          "selu", [](const Tensor& x, double alpha, double gamma) { return selu(x, alpha, gamma); },
          "alpha"_a = 1.67326, "gamma"_a = 1.0507,
          "gamma * elu(x, alpha).");
}

void BindTypes(TensorClass& tensor) {
  tensor
      .def(
          "cast",
          [](const Tensor& x, const DTypeArgument& dtype) {
            return x.cast(dtype.value_or(x.dtype()));
          },
          "dtype"_a,
          "The values in another type (docs/semantics.md): floats to integers are cut off and "
          "saturate, NaN is 0.")
      .def(
          "bitcast",
          [](const Tensor& x, const DTypeArgument& dtype) {
            return x.bitcast(dtype.value_or(x.dtype()));
          },
          "dtype"_a, "The same bits. To another width the last axis becomes longer or shorter.")
      .def("float", &CastTo<DType::kF32>, "As float32.")
      .def("half", &CastTo<DType::kF16>, "As float16.")
      .def("bfloat16", &CastTo<DType::kBF16>, "As bfloat16.")
      .def("double", &CastTo<DType::kF64>, "As float64.")
      .def("int", &CastTo<DType::kI32>, "As int32.")
      .def("long", &CastTo<DType::kI64>, "As int64.")
      .def("short", &CastTo<DType::kI16>, "As int16.")
      .def("bool", &CastTo<DType::kBool>, "Whether each element is not 0.")
      .def("is_floating_point", [](const Tensor& x) { return IsFloat(x.dtype()); },
           "Whether the type is a float.")
      .def("element_size", [](const Tensor& x) { return ByteWidth(x.dtype()); },
           "Bytes of an element.")
      .def("nbytes", [](const Tensor& x) { return x.numel() * ByteWidth(x.dtype()); },
           "Bytes of all elements.");
}

}  // namespace

void BindElementwise(nb::module_&, TensorClass& tensor) {
  BindFunctions(tensor);
  BindActivations(tensor);
  BindTypes(tensor);
}

}  // namespace outboard::python
