// Runs tables of rules over a graph, bottom-up, until none applies: for Simplify, and for passes
// with rules of their own. Threads: one at a time per Graph. Errors: none; RewriteStats reports
// that a limit was reached.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string_view>

#include "compiler/ir/uop.h"
#include "compiler/rewrite/matcher.h"

namespace outboard {

// Statistics of a rewrite. Numbers add up over calls that get the same object.
struct RewriteStats {
  int64_t visits = 0;    // look-ups of a node in a table, misses included
  int64_t matches = 0;   // rules that fired
  int64_t attempts = 0;  // Matcher::CountAttempts of each visit
  bool stopped =
      false;  // a limit was reached; the result is equal to the input, but may not be a fixed point
  std::map<std::string_view, int64_t> matches_of;  // by rule
};

// Totals over all calls of Rewrite in this thread, for benchmarks. A rewrite inside a rule is
// counted separately, and its time also counts for the enclosing one.
struct RewriteTotals {
  int64_t visits = 0;
  int64_t matches = 0;
  int64_t nanoseconds = 0;
  int64_t attempts = 0;  // while CountAttempts is on
};
RewriteTotals TotalsOfRewrites();
// Turns the counting of attempts on or off for this thread. It takes time, so it is off by default.
void CountAttempts(bool on);

// Rewrites bottom-up until no rule applies anywhere. Each node is visited once. Sources that are
// symbolic dimensions are left unchanged, since inferred shapes are compared as expressions.
//
// Stops rules that undo each other or grow without bound: after 50 matches per node of the input
// (at least 1000), when a node would become one whose own rewrite is waiting for it, and near the
// Graph's limit of nodes. `stats->stopped` reports it.
const UOp* Rewrite(Graph& graph, const UOp* root, const Matcher& matcher,
                   RewriteStats* stats = nullptr);

// While it lives, rewrites of `graph` by `matcher` in this thread remember what each node has
// become, so that one that builds on the results of others visits only what is new: without it, an
// expression that is simplified each time that something is put on top costs its square. Results
// are the same. The innermost object of a thread counts; rewrites inside a rule start afresh.
class RewritesTogether {
 public:
  RewritesTogether(const Graph& graph, const Matcher& matcher);
  ~RewritesTogether();
  RewritesTogether(const RewritesTogether&) = delete;
  RewritesTogether& operator=(const RewritesTogether&) = delete;

  struct Shared;

 private:
  const std::unique_ptr<Shared> shared_;
};

}  // namespace outboard
