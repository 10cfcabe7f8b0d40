#include "compiler/proof/linear_form.h"

#include <algorithm>

namespace outboard::proof {

Wide LinearForm::FactorOf(const UOp* atom) const {
  const auto place =
      std::lower_bound(terms.begin(), terms.end(), atom->index,
                       [](const Term& term, uint32_t index) { return term.atom->index < index; });
  return place != terms.end() && place->atom == atom ? place->factor : 0;
}

LinearForm Constant(Wide value) { return {value, {}}; }
LinearForm Atom(const UOp* atom) { return {0, {{atom, 1}}}; }

std::optional<LinearForm> AddScaled(const LinearForm& a, const LinearForm& b, Wide factor) {
  bool fits = true;
  const auto scaled_sum = [&](Wide x, Wide y) {
    Wide product = 0, sum = 0;
    fits = fits && !__builtin_mul_overflow(y, factor, &product) &&
           !__builtin_add_overflow(x, product, &sum);
    return sum;
  };
  LinearForm sum;
  sum.constant = scaled_sum(a.constant, b.constant);
  size_t i = 0, j = 0;
  while (i < a.terms.size() || j < b.terms.size()) {
    const bool of_a = j == b.terms.size() ||
                      (i < a.terms.size() && a.terms[i].atom->index <= b.terms[j].atom->index);
    const UOp* const atom = of_a ? a.terms[i].atom : b.terms[j].atom;
    const Wide left = of_a ? a.terms[i++].factor : 0;
    const bool of_b = j < b.terms.size() && b.terms[j].atom == atom;
    const Wide total = scaled_sum(left, of_b ? b.terms[j++].factor : 0);
    if (total != 0) sum.terms.push_back({atom, total});
  }
  if (!fits) return std::nullopt;
  return sum;
}

}  // namespace outboard::proof
