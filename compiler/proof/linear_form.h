// Linear forms: sums of integers with integer coefficients, constant + c0 * a0 + c1 * a1 ..., in
// exact arithmetic.
//
// The atoms are nodes of a kernel whose value is taken as it is: a loop counter, a loaded index, a
// quotient. Numbers are 128 bits wide; on overflow there is no form (std::nullopt), and nothing is
// known of the expression.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "compiler/ir/uop.h"

namespace outboard::proof {

using Wide = __int128;

// One summand.
struct Term {
  const UOp* atom;
  Wide factor;  // never 0

  bool operator==(const Term&) const = default;
};

struct LinearForm {
  Wide constant = 0;
  std::vector<Term> terms;  // ordered by the atoms' UOp::index, each atom once

  // 0 where `atom` does not occur.
  Wide FactorOf(const UOp* atom) const;

  bool operator==(const LinearForm&) const = default;
  template <typename H>
  friend H AbslHashValue(H h, const LinearForm& form) {
    h = H::combine(std::move(h), Low(form.constant), form.terms.size());
    for (const Term& term : form.terms) h = H::combine(std::move(h), term.atom, Low(term.factor));
    return h;
  }

 private:
  static uint64_t Low(Wide number) { return static_cast<uint64_t>(number); }
};

LinearForm Constant(Wide value);
LinearForm Atom(const UOp* atom);

// a + factor * b.
std::optional<LinearForm> AddScaled(const LinearForm& a, const LinearForm& b, Wide factor);

}  // namespace outboard::proof
