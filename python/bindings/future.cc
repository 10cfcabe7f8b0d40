// Values that were asked for and not waited for: Tensor.fetch().
#include "client/tensor/future.h"

#include "python/bindings/bindings.h"
#include "python/bindings/here.h"
#include "python/bindings/host_data.h"

namespace outboard::python {
namespace nb = nanobind;

void BindFuture(nb::module_& module, TensorClass& tensor) {
  nb::class_<TensorFuture>(
      module, "TensorFuture",
      "A value that is on its way: the one that the tensor had when it was asked for.")
      .def("__repr__",
           [](const TensorFuture& future) {
             if (future.empty()) return "<TensorFuture, empty>";
             try {
               return future.ready(Here()) ? "<TensorFuture, arrived>"
                                           : "<TensorFuture, on its way>";
             } catch (const Error&) {
               return "<TensorFuture, failed>";
             }
           })
      .def(
          "ready", [](const TensorFuture& future) { return future.ready(Here()); },
          "Whether reading it would not wait.")
      .def(
          "wait", [](const TensorFuture& future) { future.wait(Here()); },
          "Raises what the computation has failed with, as reading does.")
      .def(
          "item",
          [](const TensorFuture& future) {
            const At at = Here();
            HostTensor host = future.to_host(at);
            if (host.ElementCount() != 1)
              ThrowInvalid(at, "item: of more or less than one element", Mistake::kCheck);
            host.dims.clear();
            return ToList(host);
          },
          "Waits if it has not come. The one element as a number of Python.")
      .def(
          "tolist", [](const TensorFuture& future) { return ToList(future.to_host(Here())); },
          "Waits if it has not come.");
  tensor.def(
      "fetch", [](const Tensor& x) { return x.fetch(Here()); },
      "Computes it and asks for its value, and waits for neither: loss = step().fetch(); ...; "
      "loss.item()");
}

}  // namespace outboard::python
