// Looks up what a node becomes.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

#include "compiler/ir/uop.h"
#include "compiler/rewrite/pattern.h"

namespace outboard {

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

}  // namespace outboard
