// Elements to places, and by masks.

#include <array>

#include "absl/strings/str_cat.h"
#include "client/ops/index/index.h"
#include "python/bindings/arguments.h"
#include "python/bindings/bindings.h"

namespace outboard::python {
namespace nb = nanobind;
using namespace nb::literals;  // NOLINT
namespace {

ScatterReduce ReduceOf(const std::string& name) {
  constexpr std::array<std::pair<const char*, ScatterReduce>, 5> kNames = {
      {{"sum", ScatterReduce::kSum},
       {"prod", ScatterReduce::kProd},
       {"mean", ScatterReduce::kMean},
       {"amax", ScatterReduce::kMax},
       {"amin", ScatterReduce::kMin}}};
  for (const auto& [known, how] : kNames)
    if (name == known) return how;
  ThrowInvalid(absl::StrCat("scatter_reduce: reduce is sum, prod, mean, amax or amin, not ", name));
}

Tensor Scatter(const Tensor& x, int64_t dim, const Tensor& index, const Operand& src,
               const std::optional<std::string>& reduce) {
  if (!reduce) return scatter(x, dim, index, src);
  if (*reduce != "add" && *reduce != "multiply")
    throw nb::type_error("scatter: reduce is None, 'add' or 'multiply'");
  if (src.arg->is_tensor())
    throw nb::type_error("scatter: reduce needs a number; for tensors there is scatter_reduce");
  return scatter_reduce(x, dim, index, src,
                        *reduce == "add" ? ScatterReduce::kSum : ScatterReduce::kProd);
}

Tensor MaskedSelect(const Tensor& x, const Tensor& mask, std::optional<int64_t> size,
                    double fill_value) {
  return size ? masked_select(x, mask, *size, fill_value) : masked_select(x, mask);
}

Tensor NonZero(const Tensor& x, std::optional<int64_t> size, double fill_value) {
  return size ? nonzero(x, *size, fill_value) : nonzero(x);
}

}  // namespace

void BindScatter(nb::module_&, TensorClass& tensor) {
  tensor
      .def("scatter", &Scatter, "dim"_a, "index"_a, "src"_a, "reduce"_a = nb::none(),
           "y[index[i][j]][j] = src[i][j] for dim 0, and so on; where no index points, y is x. Of "
           "several the last stays.")
      .def(
          "scatter_reduce",
          [](const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src,
             const std::string& reduce, bool include_self) {
            return scatter_reduce(x, dim, index, src, ReduceOf(reduce), include_self);
          },
          "dim"_a, "index"_a, "src"_a, "reduce"_a, "include_self"_a = true,
          "As scatter; several elements for one place become their sum, prod, mean, amax or amin.")
      .def(
          "masked_fill",
          [](const Tensor& x, const Tensor& mask, const Operand& value) {
            return masked_fill(x, mask, value);
          },
          "mask"_a, "value"_a, "`value` where the mask is true.")
      .def("masked_select", &MaskedSelect, "mask"_a, "size"_a = nb::none(), "fill_value"_a = 0,
           "The elements where the mask is true. Without `size` it waits for their count.")
      .def("nonzero", &NonZero, "size"_a = nb::none(), "fill_value"_a = 0,
           "A row of indices for each element that is not 0. Without `size` it waits for their "
           "count.");
}

}  // namespace outboard::python
