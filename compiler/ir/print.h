// Prints graphs for people: in error messages, DEBUG output and failing tests. Nothing parses the
// output.
#pragma once

#include <string>

#include "compiler/ir/uop.h"

namespace outboard {

// "[64, n0 + 1]"; a VAR is n<slot>.
std::string ShapeToString(ShapeView shape);

// One line for a node without its sources: "REDUCE f32[64, 1] ADD axes 1".
std::string NodeToString(const UOp* node);

// One line per node, in PostOrder: "%3 = ADD f32[4] %1 %2".
std::string GraphToString(const UOp* root);

// A kernel expression as one line of algebra: "(r0 * 4 + r1)". Long ones are cut after `length_max`
// characters.
std::string ExpressionToString(const UOp* node, size_t length_max = 400);

}  // namespace outboard
