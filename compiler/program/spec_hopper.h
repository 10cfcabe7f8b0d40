// The rules of the instructions for sm_90a (program.h), apart from those that all instructions have
// in common: types of operands, maps that fit their buffers, and warpgroups that stay together.
#pragma once

#include <string>
#include <vector>

#include "compiler/program/program.h"

namespace outboard::program {

// Returns the rule that instruction `n`, one of IsHopper, breaks; empty where it breaks none.
std::string BrokenHopperRule(const Program& program, ValueId n);

// By instruction: whether its value may differ between threads of one group of so many consecutive
// ones: a warpgroup or a warp.
class GroupVariance {
 public:
  GroupVariance(const Program& program, int64_t threads)
      : program_(program), threads_(threads), varies_(program.code.size()) {}

  // In the order of instructions. Returns whether the value of `n` varies.
  bool Add(ValueId n);

 private:
  bool IsWholeGroups(ValueId value, int64_t more) const;

  const Program& program_;
  const int64_t threads_;
  std::vector<bool> varies_;
};

// Blocks of a cluster reach each other's memory only while all of them are there: between one
// CLUSTERSYNC and another.
class ClusterRules {
 public:
  explicit ClusterRules(const Program& program) : program_(program) {}

  // In the order of instructions. Returns the rule that `n` breaks; empty where it breaks none.
  std::string Broken(ValueId n);
  std::string BrokenAtEnd() const;

 private:
  const Program& program_;
  bool met_ = false, reached_since_ = false;
};

}  // namespace outboard::program
