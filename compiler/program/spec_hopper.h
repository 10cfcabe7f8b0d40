// The rules of the instructions for sm_90a (program.h), apart from those that all instructions have
// in common: types of operands, maps that fit their buffers, and warpgroups that stay together.
#pragma once

#include <string>
#include <vector>

#include "compiler/program/program.h"

namespace outboard::program {

// Returns the rule that instruction `n`, one of IsHopper, breaks; empty where it breaks none.
std::string BrokenHopperRule(const Program& program, ValueId n);

// By instruction: whether its value may differ between threads of one warpgroup.
class GroupVariance {
 public:
  explicit GroupVariance(const Program& program)
      : program_(program), varies_(program.code.size()) {}

  // In the order of instructions. Returns whether the value of `n` varies.
  bool Add(ValueId n);

 private:
  bool IsWholeGroups(ValueId value) const;

  const Program& program_;
  std::vector<bool> varies_;
};

}  // namespace outboard::program
