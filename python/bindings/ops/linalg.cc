// Decompositions of matrices.
#include "client/ops/product/product.h"
#include "python/bindings/arguments.h"
#include "python/bindings/bindings.h"

namespace outboard::python {
namespace nb = nanobind;
using namespace nb::literals;  // NOLINT

void BindLinalg(nb::module_&, TensorClass& tensor) {
  tensor
      .def(
          "qr",
          [](const Tensor& x) {
            const auto [q, r] = qr(x);
            return nb::make_tuple(q, r);
          },
          "(Q, R): [..., m, m] orthogonal and [..., m, n] upper triangular.")
      .def(
          "svd",
          [](const Tensor& x, bool full_matrices) {
            const auto [u, s, v] = svd(x, full_matrices);
            return nb::make_tuple(u, s, v);
          },
          "full_matrices"_a = true, "(U, S, V) with x = U diag(S) V; S falls. For small matrices.")
      .def(
          "newton_schulz",
          [](const Tensor& x, int64_t steps, const std::vector<double>& params, double eps) {
            return newton_schulz(x, steps, params, eps);
          },
          "steps"_a, "params"_a, "eps"_a = 1e-7,
          "`steps` times an odd polynomial of the singular values of x / |x|.");
}

}  // namespace outboard::python
