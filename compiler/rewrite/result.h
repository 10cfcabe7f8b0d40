// Builds the replacement of a matched node from the result pattern of a rule. Used by Matcher for
// rules without a function of their own.
#pragma once

#include "compiler/rewrite/pattern.h"

namespace outboard {

// Makes the nodes of `result` over the nodes that `match` bound, with the type and shape of its
// root. Numbers and fold(e) become constants. Threads: one at a time per Graph. Errors: none; a
// result that does not fit its match is a bug in the rule.
const UOp* BuildResult(Graph& graph, const Pattern& result, const Match& match);

}  // namespace outboard
