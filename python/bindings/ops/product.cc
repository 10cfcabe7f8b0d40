// Products of matrices.
#include "python/bindings/arguments.h"
#include "python/bindings/bindings.h"

namespace outboard::python {
namespace nb = nanobind;
using namespace nb::literals;  // NOLINT

void BindProduct(nb::module_&, TensorClass& tensor) {
  tensor
      .def(
          "matmul",
          [](const Tensor& x, const Tensor& w, bool reverse, const DTypeArgument& dtype) {
            return reverse ? w.matmul(x, dtype.given()) : x.matmul(w, dtype.given());
          },
          "x"_a, "reverse"_a = false, "dtype"_a = nb::none(),
          "[..., n, k] by [..., k, m] is [..., n, m]; vectors as in NumPy. `dtype` is that of the "
          "sums and the result.")
      .def(
          "__matmul__", [](const Tensor& x, const Tensor& w) { return x.matmul(w); },
          nb::is_operator())
      .def(
          "dot",
          [](const Tensor& x, const Tensor& w, const DTypeArgument& dtype) {
            return x.dot(w, dtype.given());
          },
          "w"_a, "dtype"_a = nb::none(), "As matmul.")
      .def(
          "linear",
          [](const Tensor& x, const Tensor& weight, const std::optional<Tensor>& bias,
             const DTypeArgument& dtype) {
            const auto as_asked = [&](const Tensor& t) {
              return dtype.given() && !t.empty() ? t.cast(*dtype.given()) : t;
            };
            return as_asked(x).linear(as_asked(weight), as_asked(bias.value_or(Tensor())));
          },
          "weight"_a, "bias"_a = nb::none(), "dtype"_a = nb::none(),
          "x weight + bias, weight (in, out); a weight (in,) is multiplied element by element. "
          "`dtype`: all of it in that type.")
      .def(
          "sequential",
          [](nb::object x, const nb::list& ll) {
            for (const nb::handle layer : ll) x = layer(x);
            return x;
          },
          "ll"_a,
          nb::sig("def sequential(self, ll: list[collections.abc.Callable[[Tensor], Tensor]]) -> "
                  "Tensor"),
          "The functions of `ll` one after the other.");
}

}  // namespace outboard::python
