// Gradients, what is done with them, and what a tensor is assigned.
#include <nanobind/nanobind.h>

#include "client/autograd/backward.h"
#include "client/lazy/node_builder.h"
#include "client/lazy/thread_state.h"
#include "python/bindings/arguments.h"
#include "python/bindings/bindings.h"
#include "python/bindings/host_data.h"

namespace outboard::python {
namespace nb = nanobind;
using namespace nb::literals;  // NOLINT
namespace {

const internal::TensorState& ValueOf(const Tensor& x) {
  if (x.empty()) ThrowIfError(absl::FailedPreconditionError("the tensor is empty"));
  return *x.value();
}

// As tinygrad: of another type it is a RuntimeError, of several elements an AssertionError.
void CheckGradient(const Tensor& y, const std::optional<Tensor>& upstream,
                   const std::vector<Tensor>& targets) {
  const auto check = [](const Tensor& x) {
    if (!IsFloat(x.dtype()))
      ThrowIfError(absl::FailedPreconditionError("only float tensors have a gradient"));
  };
  check(y);
  for (const Tensor& target : targets) check(target);
  if (upstream || y.rank() == 0) return;
  PyErr_SetString(PyExc_AssertionError,
                  "a tensor that is no scalar needs the argument `gradient` for backward");
  throw nb::python_error();
}

// What weighs a scalar may have axes of one element.
Tensor UpstreamOf(const Tensor& y, const std::optional<Tensor>& gradient) {
  if (!gradient) return Tensor();
  return y.rank() == 0 && gradient->numel() == 1 ? gradient->reshape(SymShape()) : *gradient;
}

std::vector<Tensor> GradientOf(const Tensor& y, const nb::args& targets,
                               const std::optional<Tensor>& gradient) {
  std::vector<Tensor> of;
  for (const nb::handle target : targets) of.push_back(nb::cast<Tensor>(target));
  CheckGradient(y, gradient, of);
  return y.gradient(of, UpstreamOf(y, gradient));
}

std::optional<Tensor> GradOf(const Tensor& x) {
  if (IsGradientUsedUp(x))
    ThrowIfError(absl::FailedPreconditionError(
        "the gradient of this tensor was used up by an optimiser's step; read or "
        "realize() it before, or zero_grad()"));
  const Tensor grad = x.grad();
  return grad.empty() ? std::nullopt : std::optional(grad);
}

Tensor& Assign(Tensor& x, nb::handle value) {
  Operand operand;
  if (nb::isinstance<Tensor>(value)) {
    const Tensor& other = nb::cast<const Tensor&>(value);
    if (other.dtype() != x.dtype())
      ThrowIfError(absl::FailedPreconditionError(std::string("assign dtype mismatch ") +
                                                 std::string(Name(x.dtype())) +
                                                 " != " + std::string(Name(other.dtype()))));
    return x.assign(other.value() == x.value() ? other : other.expand(x.shape()));
  }
  if (OperandFrom(value, operand)) return x.assign(*operand.arg);
  nb::object made = nb::type<Tensor>()(value, "dtype"_a = nb::cast(x.dtype()));
  return x.assign(nb::cast<Tensor&>(made).expand(x.shape()));
}

// Another tensor of the same value, which an assign to this one leaves alone.
Tensor Clone(const Tensor& x) {
  Tensor copy = x.contiguous();
  copy.value()->is_param = x.value()->is_param;
  if (x.requires_grad()) copy.requires_grad_();
  if (const Tensor grad = x.grad(); !grad.empty()) copy.set_grad(grad.contiguous());
  return copy;
}

nb::tuple Reduce(const Tensor& x) {
  const HostTensor host = ToHost(x);
  return nb::make_tuple(nb::module_::import_("outboard.tensor").attr("_unpickled"),
                        nb::make_tuple(nb::cast(host.dtype).attr("name"), ShapeTuple(x),
                                       nb::bytes(host.bytes.data(), host.bytes.size()),
                                       x.value()->is_param, x.requires_grad()));
}

void SetIsParam(Tensor& x, bool on) {
  if (!on) x.requires_grad_(false);
  x.value()->is_param = on;
}

}  // namespace

void SetRequiresGrad(Tensor& x, std::optional<bool> on) {
  if (on) x.requires_grad_(*on);
  x.value()->is_param = on.value_or(true);
}

void BindTraining(nb::module_& module, TensorClass& tensor) {
  module.def("training", &Tensor::training, "Whether this thread trains: dropout, running means.");
  module.def("set_training", [](bool on) { internal::ThreadState::Get().training = on; });
  module.def("allow_tf32", &Tensor::allow_tf32,
             "Whether GPUs may round operands of this thread's products of float32 to TF32.");
  module.def("set_allow_tf32", [](bool on) { internal::ThreadState::Get().allow_tf32 = on; });
  tensor
      .def(
          "backward",
          [](Tensor& x, const std::optional<Tensor>& gradient) -> Tensor& {
            CheckGradient(x, gradient, {});
            backward(x, UpstreamOf(x, gradient));
            return x;
          },
          "gradient"_a = nb::none(), nb::rv_policy::none,
          "Adds the gradient of this tensor, of one element unless `gradient` weighs them, to "
          "`.grad` of every float\n"
          "tensor that it was computed from. RuntimeError: this is no float; AssertionError: "
          "several elements.")
      .def("gradient", &GradientOf, "targets"_a, nb::kw_only(), "gradient"_a = nb::none(),
           "The gradients with respect to `targets`, zeros where independent; these can be "
           "differentiated again.")
      .def_prop_rw(
          "grad", &GradOf,
          [](Tensor& x, std::optional<Tensor> grad) { x.set_grad(grad.value_or(Tensor())); },
          nb::arg().none(),
          "None before backward(). An optimiser's step uses it up: RuntimeError then, until "
          "zero_grad().")
      .def_prop_rw(
          "is_param", [](const Tensor& x) { return ValueOf(x).is_param; }, &SetIsParam,
          "Whether an optimiser that is given it changes it.")
      .def_prop_rw(
          "requires_grad", [](const Tensor& x) { return ValueOf(x).is_param; },
          [](Tensor& x, std::optional<bool> on) { SetRequiresGrad(x, on); }, nb::arg().none(),
          "An older name of `is_param`.")
      .def(
          "is_param_",
          [](Tensor& x, bool on) -> Tensor& {
            SetIsParam(x, on);
            return x;
          },
          "is_param"_a = true, nb::rv_policy::none,
          "Whether an optimiser takes it for a parameter.")
      .def(
          "requires_grad_",
          [](Tensor& x, bool on) -> Tensor& {
            SetRequiresGrad(x, on);
            return x;
          },
          "requires_grad"_a = true, nb::rv_policy::none,
          "An older name of `is_param_`, which also keeps its values from step to step. backward() "
          "makes a gradient either way.")
      .def("detach", [](const Tensor& x) { return x.detach(); },
           "The same values, through which no gradient passes.")
      .def(
          "shard",
          [](const Tensor& x, nb::handle, std::optional<int64_t> axis,
             std::optional<int64_t> mesh_axis) { return x.shard(axis, mesh_axis); },
          "devices"_a = nb::none(), "axis"_a = nb::none(), nb::kw_only(),
          "mesh_axis"_a = nb::none(),
          "A hint: cut along `axis` over the session's devices, or those of one axis of its mesh; "
          "whole on each without\n`axis`. The session says how many devices there are, so "
          "`devices` is taken and not looked at.")
      .def(
          "shard_",
          [](Tensor& x, nb::handle, std::optional<int64_t> axis,
             std::optional<int64_t> mesh_axis) -> Tensor& { return x.shard_(axis, mesh_axis); },
          "devices"_a = nb::none(), "axis"_a = nb::none(), nb::kw_only(),
          "mesh_axis"_a = nb::none(), nb::rv_policy::none, "As shard, of this tensor itself.")
      .def(
          "shard_like", [](const Tensor& x, const Tensor& y) { return x.shard_like(y); }, "y"_a,
          "As the last shard or shard_ of `y`; this tensor if there was none.")
      .def(
          "contiguous", [](const Tensor& x) { return x.contiguous(); },
          "Computed as it stands, and not again by each that reads it.")
      .def(
          "contiguous_backward",
          [](const Tensor& x) {
            const internal::NodeBuilder rec;
            return Tensor::FromNode(rec, x.NodeIn(rec));
          },
          "This tensor: what is computed once is the scheduler's choice here.")
      .def(
          "clone", [](const Tensor& x, DeviceArgument) { return Clone(x); },
          "device"_a = nb::none(),
          "A copy of the values.")
      .def(
          "__deepcopy__", [](const Tensor& x, nb::handle) { return Clone(x); }, "memo"_a)
      .def("__reduce__", &Reduce, "Waits. For pickle: the value, and what kind of parameter it is.")
      .def("assign", &Assign, "x"_a, nb::rv_policy::none,
           "The value becomes that of `x`, broadcast; RuntimeError for another dtype. Lazy; what "
           "was computed from the\nold value stays.");
}

}  // namespace outboard::python
