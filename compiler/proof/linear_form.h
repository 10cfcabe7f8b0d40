// Linear forms: sums of integers with integer coefficients, constant + c0 * a0 + c1 * a1 ..., in
// exact arithmetic.
//
// The atoms are nodes of a kernel whose value is taken as it is: a loop counter, a loaded index, a
// quotient. Numbers are 128 bits wide; on overflow there is no form (std::nullopt), and nothing is
// known of the expression.
#pragma once

#include <optional>
#include <vector>

#include "compiler/ir/uop.h"

namespace outboard::proof {

using Wide = __int128;

// One summand.
struct Term {
  const UOp* atom;
  Wide factor;  // never 0
};

struct LinearForm {
  Wide constant = 0;
  std::vector<Term> terms;  // ordered by the atoms' UOp::index, each atom once

  // 0 where `atom` does not occur.
  Wide FactorOf(const UOp* atom) const;
};

LinearForm Constant(Wide value);
LinearForm Atom(const UOp* atom);

// a + factor * b.
std::optional<LinearForm> AddScaled(const LinearForm& a, const LinearForm& b, Wide factor);

}  // namespace outboard::proof
