// Gradients and what is done with them.

#include "client/python/bindings/arguments.h"
#include "client/python/bindings/bindings.h"

namespace outboard::python {
namespace nb = nanobind;
using namespace nb::literals;  // NOLINT

void BindTraining(nb::module_&, TensorClass& tensor) {
  tensor.def("backward", [](const Tensor& x) { x.backward(Here()); })
      .def(
          "requires_grad_",
          [](Tensor& x, bool on) -> Tensor& { return x.requires_grad_(on, Here()); },
          "requires_grad"_a = true, nb::rv_policy::none)
      .def_prop_rw(
          "grad",
          [](const Tensor& x) -> std::optional<Tensor> {
            const Tensor grad = x.grad();
            return grad.empty() ? std::nullopt : std::optional(grad);
          },
          [](Tensor& x, std::optional<Tensor> grad) { x.set_grad(grad.value_or(Tensor())); },
          nb::arg().none())
      .def("detach", [](const Tensor& x) { return x.detach(Here()); })
      .def("contiguous", [](const Tensor& x) { return x.contiguous(Here()); })
      .def(
          "assign", [](Tensor& x, const Operand& value) -> Tensor& { return x.assign(value); },
          "x"_a, nb::rv_policy::none);
}

}  // namespace outboard::python
