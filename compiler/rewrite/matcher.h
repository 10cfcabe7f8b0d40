// Finds the rule that applies to a node and its replacement: rule tables compiled to a decision
// table of bit vectors.
//
// Each operation has its rules in order, one bit per rule. The candidates are the AND of up to four
// words: one selected by the type of the operands (condition.h), and one by each of the first three
// sources: its operation, or for a constant whether it is 0, 1, -1 or another number. The remaining
// checks run rule by rule (match_steps.h). Earlier rules win.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

#include "compiler/ir/uop.h"
#include "compiler/rewrite/condition.h"
#include "compiler/rewrite/match_steps.h"
#include "compiler/rewrite/pattern.h"

namespace outboard {

// Tables of rules, ready to be run.
//
// Threads: immutable once made. A failed match allocates nothing.
class Matcher {
 public:
  explicit Matcher(std::initializer_list<std::span<const Rule>> tables);

  // Returns the replacement of `node` by the first rule that applies, nullptr if there is none.
  // `fired`, if not nullptr, is set to that rule.
  const UOp* Apply(Graph& graph, const UOp* node, const Rule** fired = nullptr) const;
  bool HasRulesFor(Op op) const { return group_of_[static_cast<size_t>(op)] >= 0; }

  // Returns the number of match attempts as tinygrad counts them, up to the result `fired`
  // (nullptr: no rule fired): those of the node's operation, up to the one that fired, all of whose
  // sources' operations are among those of the node's sources. For benchmarks.
  int64_t CountAttempts(const UOp* node, const Rule* fired) const;

 private:
  static constexpr int kClassesMax = 48;

  struct Entry {  // a rule, with the operands of commutative operations in one of their orders
    MatchSteps steps;
    const Rule* rule;
    int8_t root_sources;      // 0: any number
    PatternNodes conditions;  // the conjuncts still to be checked
    bool is_first;            // the first of its rule's entries
    uint64_t asked_for;       // classes of sources, as bits, constants as one: for CountAttempts
  };
  struct Group {  // of one root operation
    std::vector<Entry> entries;
    std::array<uint64_t, kTypeClasses> by_type{};
    std::array<std::array<uint64_t, kClassesMax>, 3> by_source{};
  };

  void AddEntry(const Rule& rule, const Pattern& match);
  uint8_t ClassOf(const UOp* node) const;
  // The classes that a node of the pattern may be of, as bits.
  uint64_t ClassesOf(const PatternNode& node) const;

  std::array<int16_t, kOpCodeMax> group_of_;
  // Constants are of the first classes, operations that no pattern asks for of the next one.
  std::array<uint8_t, kOpCodeMax> class_of_;
  int classes_ = kConstantClasses + 1;
  std::vector<Group> groups_;
};

}  // namespace outboard
