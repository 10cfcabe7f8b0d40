// Order along an axis.
#include "client/ops/index/index.h"
#include "python/bindings/arguments.h"
#include "python/bindings/bindings.h"

namespace outboard::python {
namespace nb = nanobind;
using namespace nb::literals;  // NOLINT

void BindSorting(nb::module_&, TensorClass& tensor) {
  const auto pair = [](const Sorted& sorted) {
    return nb::make_tuple(sorted.values, sorted.indices);
  };
  tensor
      .def(
          "sort",
          [=](const Tensor& x, int64_t dim, bool descending) {
            return pair(sort(x, dim, descending));
          },
          "dim"_a = -1, "descending"_a = false,
          "(values, indices); stable in both directions, NaN is larger than everything.")
      .def(
          "argsort",
          [](const Tensor& x, int64_t dim, bool descending) { return argsort(x, dim, descending); },
          "dim"_a = -1, "descending"_a = false,
          "The places of the elements in their order along the axis, as int32; stable.")
      .def(
          "topk",
          [=](const Tensor& x, int64_t k, int64_t dim, bool largest, bool sorted) {
            if (!sorted) {
              PyErr_SetString(PyExc_NotImplementedError, "topk: sorted_=False");
              throw nb::python_error();
            }
            return pair(topk(x, k, dim, largest));
          },
          "k"_a, "dim"_a = -1, "largest"_a = true, "sorted_"_a = true,
          "(values, indices) of the first k in that order.");
}

}  // namespace outboard::python
