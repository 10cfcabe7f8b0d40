// Runs tables of rules over a graph.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string_view>
#include <vector>

#include "compiler/ir/uop.h"
#include "compiler/rewrite/pattern.h"

namespace outboard {

// What a rewrite did. Numbers add up over calls that are given the same object.
struct RewriteStats {
  int64_t visits = 0;   // look-ups of a node in a table, misses included
  int64_t matches = 0;  // rules that fired
  bool stopped =
      false;  // a limit was reached; the result is equal to the input, but may not be a fixed point
  std::map<std::string_view, int64_t> matches_of;  // by rule
};

// Everything that Rewrite did in this process, for benchmarks. Threads: any.
struct RewriteTotals {
  int64_t visits = 0;
  int64_t matches = 0;
  int64_t nanoseconds = 0;
};
RewriteTotals TotalsOfRewrites();

// Tables of rules, ready to be run: for each operation its rules in order, with an index by the
// operations of the first three sources. Earlier rules win.
//
// Threads: immutable once made. A failed match allocates nothing.
class Matcher {
 public:
  explicit Matcher(std::initializer_list<std::span<const Rule>> tables);

  // What `node` becomes by the first rule that applies, nullptr if there is none. `fired`, if not
  // nullptr, is set to that rule.
  const UOp* Apply(Graph& graph, const UOp* node, const Rule** fired = nullptr) const;
  bool HasRulesFor(Op op) const { return group_of_[static_cast<size_t>(op)] >= 0; }

 private:
  struct Entry {
    Pattern match;  // with the operands of commutative operations in one of their orders
    const Rule* rule;
  };
  struct Group {  // of one root operation
    std::vector<Entry> entries;
    // [source][class of its operation]: which entries may match, as bits
    std::array<std::vector<uint64_t>, 3> possible;
  };

  std::array<int16_t, kOpCodeMax> group_of_;
  std::array<uint8_t, kOpCodeMax>
      class_of_;  // operations that no pattern asks for are all of class 0
  std::vector<Group> groups_;
};

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
