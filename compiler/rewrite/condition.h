// Evaluates the condition of a rewrite rule for a match: whether the rule applies.
//
// A condition is evaluated in exact integers, wide enough for a product of two 64-bit values. Parts
// that test types only (is_int(x), !is_scalar(x) ...) are the same for all nodes of a type class,
// so a Matcher evaluates them once, when it is constructed.
//
// Threads: pure. Errors: none; a condition that cannot be evaluated is a bug in its rule.
#pragma once

#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "compiler/rewrite/pattern.h"

namespace outboard {

using PatternNodes = absl::InlinedVector<int8_t, 4>;  // indices into Pattern::nodes

// Returns the nodes of a condition's conjuncts: a && b && c has three. (ConjunctsOf in conjuncts.h
// does that for conditions of a graph.)
PatternNodes ConjunctNodes(const Pattern& condition);

// Returns whether the part of a condition at node `at` holds. All its names must be bound.
bool Holds(const Pattern& condition, int at, const Match& match);

// The classes of operands that conditions distinguish: bool, signed, unsigned, float or none of
// these, each scalar or shaped.
inline constexpr int kTypeClasses = 10;
// Returns the class of a node with operands of this type.
int TypeClassOf(DType operands, bool scalar);

// Returns the type that matching tests: that of the operands for comparisons, of the node itself
// otherwise.
inline DType OperandType(const UOp* node) {
  return IsCompare(node->op) && !node->src.empty() ? node->src[0]->dtype : node->dtype;
}

// Returns the names of a pattern, as bits, whose nodes have the type of the root's operands and the
// root's shape in every match.
uint32_t NamesOfOperandType(const Pattern& match);

// Returns whether the part at node `at` tests only the types of the names in `names`.
bool AsksForTypesOnly(const Pattern& condition, int at, uint32_t names);
// Returns whether such a part holds for operands of a class.
bool HoldsForTypes(const Pattern& condition, int at, int type_class);

}  // namespace outboard
