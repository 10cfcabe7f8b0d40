// Losses. `reduction` is 'mean', 'sum' or 'none'; another one is a ValueError.
#include "client/ops/reduce/losses.h"

#include "python/bindings/arguments.h"
#include "python/bindings/bindings.h"

namespace outboard::python {
namespace nb = nanobind;
using namespace nb::literals;  // NOLINT
namespace {

Reduction ReductionOf(const std::string& name) {
  if (name == "mean") return Reduction::kMean;
  if (name == "sum") return Reduction::kSum;
  if (name == "none") return Reduction::kNone;
  throw nb::value_error(("reduction is 'mean', 'sum' or 'none', not '" + name + "'").c_str());
}

}  // namespace

void BindLosses(nb::module_&, TensorClass& tensor) {
  tensor
      .def(
          "cross_entropy",
          [](const Tensor& x, const Tensor& y, const std::string& reduction, double smoothing) {
            return cross_entropy(x, y, ReductionOf(reduction), smoothing);
          },
          "Y"_a, "reduction"_a = "mean", "label_smoothing"_a = 0.0,
          "Classes on axis 1; Y has labels, or probabilities of this shape.")
      // -1 says that every label counts; a label of -1 is then one of no class, with a loss of 0.
      .def(
          "sparse_categorical_crossentropy",
          [](const Tensor& x, const Tensor& y, int64_t ignore_index, double smoothing,
             const std::string& reduction) {
            const auto ignored = ignore_index == -1 ? std::nullopt : std::optional(ignore_index);
            return sparse_categorical_crossentropy(x, y, ignored, smoothing,
                                                   ReductionOf(reduction));
          },
          "Y"_a, "ignore_index"_a = -1, "label_smoothing"_a = 0.0, "reduction"_a = "mean",
          "Classes on the last axis; Y has labels.")
      .def(
          "nll_loss",
          [](const Tensor& x, const Tensor& y, const std::optional<Tensor>& weight,
             std::optional<int64_t> ignore_index, const std::string& reduction) {
            return nll_loss(x, y, weight.value_or(Tensor()), ignore_index, ReductionOf(reduction));
          },
          "Y"_a, "weight"_a = nb::none(), "ignore_index"_a = nb::none(), "reduction"_a = "mean",
          "Of log probabilities, classes on axis 1; Y has labels.")
      .def(
          "binary_crossentropy",
          [](const Tensor& x, const Tensor& y, const std::string& reduction) {
            return binary_crossentropy(x, y, ReductionOf(reduction));
          },
          "Y"_a, "reduction"_a = "mean",
          "-(Y log(x) + (1 - Y) log(1 - x)), of probabilities; reduced to its mean, its sum, or "
          "not.")
      .def(
          "binary_crossentropy_logits",
          [](const Tensor& x, const Tensor& y, const std::string& reduction,
             const std::optional<Tensor>& pos_weight) {
            return binary_crossentropy_logits(x, y, ReductionOf(reduction),
                                              pos_weight.value_or(Tensor()));
          },
          "Y"_a, "reduction"_a = "mean", "pos_weight"_a = nb::none(),
          "binary_crossentropy of sigmoid(x), without overflow; reduced to its mean, its sum, "
          "or not.");
}

}  // namespace outboard::python
