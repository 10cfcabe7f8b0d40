// What a rule makes of a match, by its result pattern.
#pragma once

#include "compiler/rewrite/pattern.h"

namespace outboard {

// The nodes of `result` over what `match` bound, of the type and shape of its root. Numbers and
// fold(e) become constants. Threads: one at a time for a Graph. Errors: none; a result that does
// not fit its match is a bug of the rule's.
const UOp* BuildResult(Graph& graph, const Pattern& result, const Match& match);

}  // namespace outboard
