#include "tests/client/operators/each.h"

#include <utility>

namespace outboard::operators {

Row Each(const std::string& name, const std::string& form, Types types, Yields yields,
         Operand operand, std::function<Tensor(const Tensor&)> make, Function f, double units,
         Gradient gradient) {
  return {
      name,
      form,
      "any",
      types,
      yields,
      gradient,
      {std::move(operand)},
      [make](const Tensors& x) { return make(x[0]); },
      [f](const Arrays& x) { return Build(x[0].dims, [&](const Dims& i) { return f(x[0](i)); }); },
      units};
}

Row OfFloats(const std::string& name, const std::string& form, Operand operand,
             std::function<Tensor(const Tensor&)> make, Function f, double units) {
  return Each(name, form, Types::kAll, Yields::kFloat, std::move(operand), std::move(make),
              std::move(f), units);
}

}  // namespace outboard::operators
