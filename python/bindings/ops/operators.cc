// Element by element: functions of two tensors, and Python's operators.
#include <functional>

#include "client/ops/elementwise/arithmetic.h"
#include "python/bindings/arguments.h"
#include "python/bindings/bindings.h"

namespace outboard::python {
namespace nb = nanobind;
using namespace nb::literals;  // NOLINT
namespace {

// As std::plus and its like, for what is a function in C++.
template <auto function>
struct Named {
  Tensor operator()(const Arg& a, const Arg& b) const { return function(a, b); }
};
using FloorDiv = Named<&floor_div>;
using FloorMod = Named<&floor_mod>;
using Power = Named<static_cast<Tensor (*)(const Arg&, const Arg&)>(&outboard::pow)>;

// Beside a tensor of integers, an int that is a pattern of bits of their width: 0xFFFFFFFF is -1
// beside i32.
Arg AsBits(const Arg& number, const Arg& beside) {
  if (number.kind() != Arg::Kind::kInt || !beside.is_tensor()) return number;
  const DType dtype = beside.tensor().dtype();
  if (!IsInt(dtype) || ByteWidth(dtype) == 8) return number;
  const int64_t patterns = int64_t{1} << (8 * ByteWidth(dtype)), value = number.int_value();
  return value > IntMax(dtype) && value < patterns ? Arg(value - patterns, number.at()) : number;
}

template <typename Function>
struct OfBits {
  Tensor operator()(const Arg& a, const Arg& b) const {
    return Function()(AsBits(a, b), AsBits(b, a));
  }
};

struct ShiftLeft {
  Tensor operator()(const Arg& a, const Arg& b) const { return a << b; }
};
struct ShiftRight {
  Tensor operator()(const Arg& a, const Arg& b) const { return a >> b; }
};

template <typename Function>
Tensor Plain(const Tensor& a, const Operand& b) {
  return Function()(a, *b.arg);
}

template <typename Function>
Tensor Reflected(const Tensor& a, const Operand& b) {
  return Function()(*b.arg, a);
}

template <typename Function>
Tensor Either(const Tensor& a, const Operand& b, bool reverse) {
  return reverse ? Reflected<Function>(a, b) : Plain<Function>(a, b);
}

// x stays the tensor that it is, of its type.
template <typename Function>
Tensor& InPlace(Tensor& x, const Operand& other) {
  const Tensor value = Plain<Function>(x, other);
  if (value.dtype() != x.dtype())
    ThrowInvalid(std::string("in place: the result is ") + std::string(Name(value.dtype())) +
                 ", the tensor " + std::string(Name(x.dtype())));
  return x.assign(value);
}

// `a op b`, `b op a` of a number b, and `a op= b`, where `op` is "add" for __add__.
template <typename Function>
void Operator(TensorClass& tensor, const std::string& op) {
  tensor.def(("__" + op + "__").c_str(), &Plain<Function>, nb::is_operator())
      .def(("__r" + op + "__").c_str(), &Reflected<Function>, nb::is_operator())
      .def(("__i" + op + "__").c_str(), &InPlace<Function>, nb::is_operator(), nb::rv_policy::none);
}

template <typename Function>
void Method(TensorClass& tensor, const char* name, const char* text) {
  tensor.def(name, &Either<Function>, "x"_a, "reverse"_a = false, text);
}

template <typename Function>
void Compare(TensorClass& tensor, const char* name) {
  tensor.def(name, &Plain<Function>, nb::is_operator());
}

Tensor Div(const Tensor& x, const Operand& y, bool reverse,
           std::optional<std::string> rounding_mode) {
  if (!rounding_mode) return Either<std::divides<>>(x, y, reverse);
  if (*rounding_mode == "floor") return Either<FloorDiv>(x, y, reverse);
  if (*rounding_mode == "trunc") return Either<Named<&trunc_div>>(x, y, reverse);
  ThrowInvalid("div: rounding_mode is 'trunc', 'floor' or None, not '" + *rounding_mode + "'");
}

Tensor Clamp(const Tensor& x, const std::optional<Operand>& low,
             const std::optional<Operand>& high) {
  const auto bound = [](const std::optional<Operand>& given) {
    return given ? std::optional(*given->arg) : std::nullopt;
  };
  return clamp(x, bound(low), bound(high));
}

}  // namespace

void BindOperators(nb::module_&, TensorClass& tensor) {
  // What NumPy's numbers and arrays do beside a Tensor is for the Tensor to say.
  tensor.attr("__array_ufunc__") = nb::none();
  Operator<std::plus<>>(tensor, "add");
  Operator<std::minus<>>(tensor, "sub");
  Operator<std::multiplies<>>(tensor, "mul");
  Operator<std::divides<>>(tensor, "truediv");
  Operator<FloorDiv>(tensor, "floordiv");
  Operator<FloorMod>(tensor, "mod");
  Operator<Power>(tensor, "pow");
  Operator<OfBits<std::bit_and<>>>(tensor, "and");
  Operator<OfBits<std::bit_or<>>>(tensor, "or");
  Operator<OfBits<std::bit_xor<>>>(tensor, "xor");
  Operator<ShiftLeft>(tensor, "lshift");
  Operator<ShiftRight>(tensor, "rshift");
  Compare<std::less<>>(tensor, "__lt__");
  Compare<std::greater<>>(tensor, "__gt__");
  Compare<std::less_equal<>>(tensor, "__le__");
  Compare<std::greater_equal<>>(tensor, "__ge__");
  Compare<std::equal_to<>>(tensor, "__eq__");
  Compare<std::not_equal_to<>>(tensor, "__ne__");
  Method<std::plus<>>(tensor, "add", "Of bool: whether either is true.");
  Method<std::minus<>>(tensor, "sub", "Not of bool.");
  Method<std::multiplies<>>(tensor, "mul", "Of bool: whether both are true.");
  Method<FloorMod>(tensor, "mod",
                   "Python's remainder, with the sign of the divisor; x % 0 is x, of integers.");
  Method<Power>(tensor, "pow", "Integers stay integers and wrap.");
  Method<OfBits<std::bit_and<>>>(tensor, "bitwise_and", "Of integers and bool.");
  Method<OfBits<std::bit_or<>>>(tensor, "bitwise_or", "Of integers and bool.");
  Method<OfBits<std::bit_xor<>>>(tensor, "bitwise_xor", "Of integers and bool.");
  Method<ShiftLeft>(tensor, "lshift", "Of integers; 0 where the amount is not below the width.");
  Method<ShiftRight>(tensor, "rshift", "Of integers; with the sign.");
  tensor
      .def("__hash__",
           [](nb::handle self) { return reinterpret_cast<Py_ssize_t>(self.ptr()) >> 4; })
      .def("eq", &Plain<std::equal_to<>>, "x"_a, "Whether the elements are equal, as bool.")
      .def("ne", &Plain<std::not_equal_to<>>, "x"_a, "Whether the elements differ, as bool.")
      .def("div", &Div, "x"_a, "reverse"_a = false, "rounding_mode"_a = nb::none(),
           "The true quotient, a float; with rounding_mode 'floor' or 'trunc' a whole number, of "
           "integers an integer.")
      .def("fmod", &Plain<Named<&outboard::fmod>>, "x"_a,
           "C's remainder, with the sign of the dividend.")
      .def(
          "maximum", [](const Tensor& x, const Operand& y) { return x.maximum(y); }, "x"_a,
          "The larger of both; NaN where one of them is.")
      .def(
          "minimum", [](const Tensor& x, const Operand& y) { return x.minimum(y); }, "x"_a,
          "The smaller of both; NaN where one of them is.")
      .def("copysign", &Plain<Named<&outboard::copysign>>, "other"_a,
           "The absolute value of x with the sign of the other.")
      .def("logaddexp", &Plain<Named<&logaddexp>>, "other"_a,
           "log(e^x + e^other), without overflow.")
      .def("threefry", &Plain<Named<&threefry>>, "seed"_a, "Of uint64.")
      .def("clamp", &Clamp, "min_"_a = nb::none(), "max_"_a = nb::none(),
           "x, not below min_ and not above max_. At least one of them is needed.")
      .def("clip", &Clamp, "min_"_a = nb::none(), "max_"_a = nb::none(), "Another name of clamp.")
      .def(
          "lerp",
          [](const Tensor& x, const Operand& end, const Operand& weight) {
            return lerp(x, end, weight);
          },
          "end"_a, "weight"_a,
          "x + (end - x) * weight.")
      .def(
          "where",
          [](const Tensor& x, const Operand& a, const Operand& b) { return x.where(a, b); }, "x"_a,
          "y"_a, "x where this tensor of bool is true, else y.")
      .def(
          "isclose",
          [](const Tensor& x, const Operand& other, double rtol, double atol, bool equal_nan) {
            return isclose(x, other, rtol, atol, equal_nan);
          },
          "other"_a, "rtol"_a = 1e-5, "atol"_a = 1e-8, "equal_nan"_a = false,
          "Whether |x - other| <= atol + rtol * |other|, as bool.")
      .def(
          "allclose",
          [](const Tensor& x, const Operand& other, double rtol, double atol, bool equal_nan) {
            return allclose(x, other, rtol, atol, equal_nan);
          },
          "other"_a, "rtol"_a = 1e-5, "atol"_a = 1e-8, "equal_nan"_a = false,
          "A tensor of one bool.");
}

}  // namespace outboard::python
