// Index expressions as sums: constant + coefficient * term + ..., exact in wrapping 64-bit
// arithmetic.
//
// A term is a RANGE or any other i64 node that is not a sum (a quotient, a loaded index ...). How
// an address moves with a loop is then the coefficient of its range, if no other term depends on
// it.
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

// ADD, NEG, MUL by a constant, SHL by a constant, CONST and RANGE of i64: what a sum is made of.
bool IsAffineOp(const UOp* node);

// Sums of the nodes of one kernel, each made once.
class AffineForms {
 public:
  const Affine& Of(const UOp* node);  // `node` is i64

 private:
  Affine Make(const UOp* node) const;  // its sources are made

  absl::flat_hash_map<const UOp*, Affine> forms_;
};

}  // namespace outboard::codegen
