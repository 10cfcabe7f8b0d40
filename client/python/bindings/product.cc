// Products of matrices.
#include "client/python/bindings/arguments.h"
#include "client/python/bindings/bindings.h"

namespace outboard::python {
namespace nb = nanobind;
using namespace nb::literals;  // NOLINT

void BindProduct(nb::module_&, TensorClass& tensor) {
  tensor
      .def(
          "matmul",
          [](const Tensor& x, const Tensor& w, bool reverse) {
            return reverse ? w.matmul({x, Here()}) : x.matmul({w, Here()});
          },
          "x"_a, "reverse"_a = false,
          "[..., n, k] by [..., k, m] is [..., n, m]; vectors as in NumPy.")
      .def(
          "__matmul__", [](const Tensor& x, const Tensor& w) { return x.matmul({w, Here()}); },
          nb::is_operator())
      .def("dot", [](const Tensor& x, const Tensor& w) { return x.dot({w, Here()}); }, "w"_a);
}

}  // namespace outboard::python
