// Many steps as one message (client/capture/repeat.h).
#include "client/capture/repeat.h"

#include <utility>

#include "python/bindings/arguments.h"
#include "python/bindings/bindings.h"

namespace outboard::python {
namespace nb = nanobind;
using namespace nb::literals;  // NOLINT
namespace {

// What a step returned: nothing, a Tensor, or a list or tuple of them, of which the library is then
// the only owner.
std::vector<Tensor> Take(nb::object result) {
  if (result.is_none()) return {};
  if (nb::isinstance<Tensor>(result)) return {nb::cast<Tensor>(result)};
  std::vector<Tensor> tensors;
  if (!nb::isinstance<nb::list>(result) && !nb::isinstance<nb::tuple>(result))
    throw nb::type_error("repeat: a step returns nothing, a Tensor, or a list or tuple of them");
  for (const nb::handle item : result) tensors.push_back(nb::cast<Tensor>(item));
  return tensors;
}

nb::object Repeat(int64_t count, const nb::callable& step, const nb::object& index) {
  const At at = Here();
  std::optional<SymInt> size;
  if (!index.is_none()) {
    size = SizeOf(index);
    if (!size) throw nb::type_error("repeat: the index is a bound Variable");
  }
  internal::RepeatStep recorded(count, size ? &*size : nullptr, at);
  nb::object result = size ? step(index) : step();
  const bool nothing = result.is_none(), one = nb::isinstance<Tensor>(result);
  std::vector<Tensor> stacked = Take(std::exchange(result, nb::none()));
  stacked = recorded.Finish(std::move(stacked));  // nobody else has them any more
  if (nothing) return nb::none();
  return one ? nb::cast(stacked[0]) : nb::cast(stacked);
}

}  // namespace

void BindRepeat(nb::module_& module) {
  module.def(
      "repeat", &Repeat, "count"_a, "step"_a, "index"_a = nb::none(),
      "Does `step` `count` times as one message, and waits for nothing.\n\n"
      "    losses = outboard.repeat(50, trainer.step)      # [50], on its way\n\n"
      "`step` is called once and recorded. What it assigns is what the next repetition begins "
      "with; a Tensor that it\n"
      "returns, or each of a list of them, has a leading axis of `count`: one value of each step. "
      "With `index`, a bound\n"
      "Variable, it is called with that, which rises by one from repetition to repetition.\n\n"
      "The step realises at most once, reads no value, leaves no gradient and keeps no tensor that "
      "it does not return;\n"
      "what it assigns was realised before. Otherwise outboard.Error, with everything as before.");
}

}  // namespace outboard::python
