// Programs with one mistake planted: instructions left out or changed.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "compiler/program/program.h"

namespace outboard::test {

// Changes an instruction, for which it may add others before it; false leaves it out.
using ProgramEdit = std::function<bool(program::ProgramBuilder&, program::Instruction&)>;

inline program::Program Edited(const program::Program& program, const ProgramEdit& edit) {
  program::ProgramBuilder b;
  b.SetAround(program);
  std::vector<program::ValueId> made(program.code.size(), -1);
  for (size_t n = 0; n < program.code.size(); ++n) {
    program::Instruction i = program.code[n];
    for (program::ValueId& s : i.src) s = made[s];
    if (edit(b, i)) made[n] = b.Add(std::move(i));
  }
  return b.Take(program.buffer_count);
}

inline ProgramEdit Without(program::Code code) {
  return [code](program::ProgramBuilder&, program::Instruction& i) { return i.code != code; };
}

// The `nth` instruction of that code, from 0 on, is changed by `change`.
inline ProgramEdit Changing(program::Code code, int nth, ProgramEdit change) {
  return [=, seen = 0](program::ProgramBuilder& b, program::Instruction& i) mutable {
    return i.code != code || seen++ != nth || change(b, i);
  };
}

inline bool Drop(program::ProgramBuilder&, program::Instruction&) { return false; }

}  // namespace outboard::test
