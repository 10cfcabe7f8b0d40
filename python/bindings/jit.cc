// What outboard.jit is made of: one captured step, whose calls Python counts.
#include "client/capture/jit.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/vector.h>

#include "python/bindings/arguments.h"
#include "python/bindings/bindings.h"

namespace outboard::python {
namespace nb = nanobind;
using namespace nb::literals;  // NOLINT

void BindJit(nb::module_& module) {
  nb::class_<Jit>(module, "Jit")
      .def("__init__", [](Jit* self) { new (self) Jit(nullptr); })
      .def_prop_ro("captured", &Jit::captured)
      .def("reset", &Jit::reset)
      .def(
          "__repr__",
          [](const Jit& jit) { return jit.captured() ? "<Jit, captured>" : "<Jit, not captured>"; })
      .def(
          "capture",
          [](Jit& jit, const std::vector<Tensor>& tensors, const std::vector<SymInt>& sizes,
             const nb::callable& step) {
            return jit.Capture(
                tensors, sizes, [&] { return nb::cast<std::vector<Tensor>>(step()); }, Here());
          },
          "tensors"_a, "sizes"_a, "step"_a,
          "Runs step(), which returns tensors, and records what it sends.")
      .def(
          "send",
          [](Jit& jit, const std::vector<Tensor>& tensors, const std::vector<SymInt>& sizes) {
            return jit.Send(tensors, sizes, Here());
          },
          "tensors"_a, "sizes"_a, "Sends it again, without running anything.");
}

}  // namespace outboard::python
