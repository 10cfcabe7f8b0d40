// Integer expressions as sums: constant + coefficient * term + ...
//
// A sum stands for its expression in the wrapping arithmetic of `dtype`: coefficients are taken
// modulo 2^width and kept as the signed number nearest to zero. Where BoundsOfSum lies within the
// type, the sum is also equal to the expression in the integers, which is what division and order
// need.
#pragma once

#include <cstdint>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "compiler/ir/uop.h"

namespace outboard {

struct LinearSum {
  int64_t constant = 0;
  // Distinct terms that are no sums themselves, in the order of CompareStructure; no coefficient is
  // 0.
  absl::InlinedVector<std::pair<const UOp*, int64_t>, 6> terms;
  DType dtype = DType::kI64;
};

// Sums of more terms are left as they stand.
inline constexpr int kLinearTermsMax = 32;

// The sum that `expression`, a scalar of an integer type, is: through ADD, NEG, and MUL and SHL by
// constants. What is none of these is a term. An expression of over kLinearTermsMax terms is one
// term.
LinearSum LinearOf(const UOp* expression);
// The sum that has it for its one term, whatever it is.
LinearSum AsTerm(const UOp* expression);

// The expression of a sum: its terms from left to right, the constant last. `linear` may hold terms
// in any order and coefficients of 0, but each term once.
const UOp* FromLinear(Graph& graph, LinearSum linear);

// Whether `expression` is what FromLinear would make of `linear`, whose terms are in order. Makes
// no nodes.
bool IsExpressionOf(const UOp* expression, const LinearSum& linear);

// Adds coefficient * term, or factor * other. Keeps the order.
void AddTerm(LinearSum& linear, const UOp* term, int64_t coefficient);
void AddScaled(LinearSum& linear, const LinearSum& other, int64_t factor);

// The least and the greatest value of the sum in the integers, by the bounds of its terms; -2^100
// and 2^100 where a term is far beyond 64 bits.
struct WideBounds {
  __int128 min = 0;
  __int128 max = 0;
};
WideBounds BoundsOfSum(const LinearSum& linear);
// Whether the sum cannot wrap, so that it is its expression in the integers.
bool IsExact(const LinearSum& linear);

}  // namespace outboard
