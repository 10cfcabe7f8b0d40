// Formulas over named axes.
#include "client/ops/product/product.h"
#include "client/ops/shape/shape.h"
#include "python/bindings/arguments.h"
#include "python/bindings/bindings.h"

namespace outboard::python {
namespace nb = nanobind;
using namespace nb::literals;  // NOLINT
namespace {

Tensor Einsum(const std::string& formula, const nb::args& operands, const DTypeArgument& dtype) {
  nb::object list = nb::borrow(operands);
  if (operands.size() == 1 && !nb::isinstance<Tensor>(operands[0])) list = nb::borrow(operands[0]);
  std::vector<Tensor> tensors;
  for (const nb::handle operand : list) {
    const Tensor& tensor = nb::cast<const Tensor&>(operand);
    tensors.push_back(dtype.given() ? tensor.cast(*dtype.given()) : tensor);
  }
  const Tensor y = einsum(formula, tensors);
  return dtype.given() ? y.cast(*dtype.given()) : y;
}

Tensor Rearrange(const Tensor& x, const std::string& formula, const nb::kwargs& sizes) {
  std::map<std::string, int64_t> lengths;
  for (const auto& [name, length] : sizes)
    lengths[nb::cast<std::string>(name)] = nb::cast<int64_t>(length);
  return rearrange(x, formula, lengths);
}

}  // namespace

void BindEinsum(nb::module_&, TensorClass& tensor) {
  tensor
      .def_static("einsum", &Einsum, "formula"_a, "operands"_a, "dtype"_a = nb::none(),
                  "Tensor.einsum(\"ij,jk->ik\", a, b): the sum of products over the letters that "
                  "are not on the right.")
      .def("rearrange", &Rearrange, "formula"_a, "sizes"_a,
           "x.rearrange(\"b (h w) -> h b w\", w=4): axes by name, in the notation of einops.");
}

}  // namespace outboard::python
