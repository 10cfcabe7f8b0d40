// Tables of rules in the most obvious way: each rule in order, each order of the operands of
// commutative operations, every check at the match itself. What compiler/rewrite/matcher.h must do
// faster.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "compiler/rewrite/pattern.h"

namespace outboard::test {

struct Interpretation {
  const UOp* result = nullptr;  // nullptr: no rule applies
  const Rule* fired = nullptr;
  int64_t attempts = 0;  // as Matcher::CountAttempts
};

Interpretation ApplyByInterpreter(Graph& graph, const std::vector<std::span<const Rule>>& tables,
                                  const UOp* node);

}  // namespace outboard::test
