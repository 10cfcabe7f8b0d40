// Runs tables of rules over a graph, bottom-up, until none applies: what Simplify does, and any
// pass that has rules of its own. Threads: one at a time for a Graph. Errors: none; RewriteStats
// says where a limit was met.
#pragma once

#include <cstdint>
#include <map>
#include <string_view>

#include "compiler/ir/uop.h"
#include "compiler/rewrite/matcher.h"

namespace outboard {

// What a rewrite did. Numbers add up over calls that are given the same object.
struct RewriteStats {
  int64_t visits = 0;    // look-ups of a node in a table, misses included
  int64_t matches = 0;   // rules that fired
  int64_t attempts = 0;  // Matcher::CountAttempts of each visit
  bool stopped =
      false;  // a limit was reached; the result is equal to the input, but may not be a fixed point
  std::map<std::string_view, int64_t> matches_of;  // by rule
};

// Everything that Rewrite did in this thread, for benchmarks. A rewrite inside of a rule is counted
// by itself and in the time of the one around it.
struct RewriteTotals {
  int64_t visits = 0;
  int64_t matches = 0;
  int64_t nanoseconds = 0;
  int64_t attempts = 0;  // while CountAttempts is on
};
RewriteTotals TotalsOfRewrites();
// Counting attempts takes time, so it is off until asked for, for this thread.
void CountAttempts(bool on);

// Rewrites bottom-up until no rule applies anywhere. Each node is looked at once. Sources that
// stand for symbolic dimensions are left as they are, since inferred shapes are compared by their
// spelling.
//
// Rules that undo each other, or grow for ever, are stopped: after 50 matches for every node of the
// input (1000 at least), and where a node would become one that is waiting for it; likewise near
// the Graph's limit of nodes. `stats` says so.
const UOp* Rewrite(Graph& graph, const UOp* root, const Matcher& matcher,
                   RewriteStats* stats = nullptr);

}  // namespace outboard
