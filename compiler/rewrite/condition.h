// When a rule applies: what its condition comes to for a match.
//
// A condition is evaluated in exact integers, which hold whatever fits 64 bits and one product of
// that. Its parts that ask for types alone (is_int(x), !is_scalar(x) ...) are the same for all
// nodes of a TypeClass, so a Matcher evaluates them when it is made and never again.
//
// Threads: pure. Errors: none; a condition that cannot be evaluated is a bug of its rule's.
#pragma once

#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "compiler/rewrite/pattern.h"

namespace outboard {

// The parts of a condition that all must hold, as indices of its nodes: a && b && c has three.
using Conjuncts = absl::InlinedVector<int8_t, 4>;
Conjuncts ConjunctsOf(const Pattern& condition);

// Whether the part of a condition at node `at` holds. Every name of it is bound.
bool Holds(const Pattern& condition, int at, const Match& match);

// What rules ask of the operands of an operation: bool, signed, unsigned, float or nothing of
// these, scalar or shaped.
inline constexpr int kTypeClasses = 10;
// That of a node with operands of this type.
int TypeClassOf(DType operands, bool scalar);

// The operands of a node that matching looks at: those of comparisons, elsewhere what the node is.
inline DType OperandType(const UOp* node) {
  return IsCompare(node->op) && !node->src.empty() ? node->src[0]->dtype : node->dtype;
}

// Names of a pattern, as bits, whose nodes have the type of the root's operands and the root's
// shape, in any match.
uint32_t NamesOfOperandType(const Pattern& match);

// Whether the part at node `at` asks for the types of the names in `names` only.
bool AsksForTypesOnly(const Pattern& condition, int at, uint32_t names);
// Whether such a part holds for operands of a class.
bool HoldsForTypes(const Pattern& condition, int at, int type_class);

}  // namespace outboard
