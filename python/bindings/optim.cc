// The rules of the optimisers, which outboard.nn.optim gives tinygrad's constructors.
#include "client/nn/optim.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/vector.h>

#include "absl/strings/str_cat.h"
#include "python/bindings/arguments.h"
#include "python/bindings/bindings.h"

namespace outboard::python {
namespace nb = nanobind;
using namespace nb::literals;  // NOLINT

void BindOptim(nb::module_& module) {
  using optim::LAMB;
  using optim::LARS;
  using optim::Muon;
  using optim::Optimizer;
  nb::class_<Optimizer>(module, "OptimizerRule")
      .def("schedule_step", [](Optimizer& rule) { return rule.schedule_step(Here()); })
      .def_prop_ro("lr", &Optimizer::lr_tensor)
      .def_prop_ro("state", &Optimizer::state)
      .def("__repr__", [](const Optimizer& rule) {
        return absl::StrCat("<OptimizerRule, ", rule.state().size(), " tensors of state>");
      });
  nb::class_<LARS, Optimizer>(module, "LarsRule")
      .def(
          "__init__",
          [](LARS* self, std::vector<Tensor> params, double lr, double momentum,
             double weight_decay, bool nesterov, bool classic, double tcoef) {
            new (self) LARS(std::move(params), lr,
                            {momentum, weight_decay, nesterov, classic, tcoef}, Here());
          },
          "params"_a, "lr"_a, "momentum"_a, "weight_decay"_a, "nesterov"_a, "classic"_a, "tcoef"_a);
  nb::class_<Muon, Optimizer>(module, "MuonRule")
      .def(
          "__init__",
          [](Muon* self, std::vector<Tensor> params, double lr, double momentum,
             double weight_decay, int64_t ns_steps, std::vector<double> ns_coefficients,
             bool nesterov) {
            new (self) Muon(
                std::move(params), lr,
                {momentum, weight_decay, ns_steps, std::move(ns_coefficients), nesterov}, Here());
          },
          "params"_a, "lr"_a, "momentum"_a, "weight_decay"_a, "ns_steps"_a, "ns_coefficients"_a,
          "nesterov"_a);
  nb::class_<LAMB, Optimizer>(module, "LambRule")
      .def(
          "__init__",
          [](LAMB* self, std::vector<Tensor> params, double lr, double b1, double b2, double eps,
             double weight_decay, bool adam) {
            new (self) LAMB(std::move(params), lr, b1, b2, eps, weight_decay, adam, Here());
          },
          "params"_a, "lr"_a, "b1"_a, "b2"_a, "eps"_a, "weight_decay"_a, "adam"_a);
}

}  // namespace outboard::python
