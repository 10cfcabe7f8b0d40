// Index expressions as sums: constant + coefficient * term + ..., exact in wrapping 64-bit
// arithmetic.
//
// A term is a RANGE or any other i64 node that is not a sum (a quotient, a loaded index ...). The
// stride of an address in a loop is then the coefficient of its range, if no other term depends on
// that range.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "compiler/ir/uop.h"

namespace outboard::codegen {

struct Affine {
  uint64_t constant = 0;
  std::vector<std::pair<const UOp*, uint64_t>> terms;  // ascending by UOp::index, no coefficient 0

  uint64_t CoefficientOf(const UOp* term) const;
};

// Returns whether `node` is part of a sum: ADD, NEG, MUL by a constant, SHL by a constant, CONST or
// RANGE, of i64.
bool IsAffineOp(const UOp* node);

// The affine forms of the nodes of one kernel, each computed once.
class AffineForms {
 public:
  const Affine& Of(const UOp* node);  // `node` is i64

 private:
  Affine Make(const UOp* node) const;  // the forms of its sources are known

  absl::flat_hash_map<const UOp*, Affine> forms_;
};

}  // namespace outboard::codegen
