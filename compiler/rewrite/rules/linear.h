// Integer expressions as sums: constant + coefficient * term + ...
//
// A sum stands for its expression in the wrapping arithmetic of `dtype`: coefficients are reduced
// modulo 2^width to the signed number nearest to zero. If BoundsOfSum lies within the type, the sum
// also equals the expression in the integers, which division and ordering need.
#pragma once

#include <cstdint>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "compiler/ir/uop.h"

namespace outboard {

struct LinearSum {
  int64_t constant = 0;
  // Distinct terms that are not sums themselves, in the order of CompareStructure; no coefficient
  // is 0.
  absl::InlinedVector<std::pair<const UOp*, int64_t>, 6> terms;
  DType dtype = DType::kI64;
};

// Sums of more terms are left unchanged.
inline constexpr int kLinearTermsMax = 32;

// Returns `expression`, a scalar of an integer type, as a sum, looking through ADD, NEG, and MUL
// and SHL by constants. Any other operation is a term. An expression of over kLinearTermsMax terms
// is one term.
LinearSum LinearOf(const UOp* expression);
// Returns the sum whose only term is `expression`, even if it is a sum itself.
LinearSum AsTerm(const UOp* expression);

// Makes the expression of a sum: its terms from left to right, the constant last. `linear` may have
// terms in any order and coefficients of 0, but each term only once.
const UOp* FromLinear(Graph& graph, LinearSum linear);

// Returns whether `expression` equals the result of FromLinear(linear), whose terms are in order.
// Makes no nodes.
bool IsExpressionOf(const UOp* expression, const LinearSum& linear);

// Adds coefficient * term, or factor * other. Terms stay in order.
void AddTerm(LinearSum& linear, const UOp* term, int64_t coefficient);
void AddScaled(LinearSum& linear, const LinearSum& other, int64_t factor);

// The least and the greatest value of the sum in the integers, by the bounds of its terms; -2^100
// and 2^100 where a term is far beyond 64 bits.
struct WideBounds {
  __int128 min = 0;
  __int128 max = 0;
};
WideBounds BoundsOfSum(const LinearSum& linear);
// Returns whether the sum cannot wrap, so that it equals its expression in the integers.
bool IsExact(const LinearSum& linear);

}  // namespace outboard
