// Copies a program piece by piece to a ProgramBuilder: the base of the passes that rewrite.
#pragma once

#include <vector>

#include "compiler/program/program.h"

namespace outboard::program {

// By buffer slot: whether the program stores nothing to it.
inline std::vector<bool> ReadOnlySlots(const Program& program) {
  std::vector<bool> read_only(program.buffer_count, true);
  for (const Instruction& i : program.code) {
    if (i.code == Code::kStore && program.code[i.src[0]].code == Code::kBuffer)
      read_only[program.code[i.src[0]].imm[0]] = false;
    if (i.code == Code::kBoxStore)
      read_only[program.maps[program.code[i.src[2]].imm[0]].slot] = false;
  }
  return read_only;
}

// Maps the instruction that opens a scope to the one that closes it.
inline std::vector<ValueId> EndsOf(const Program& program) {
  std::vector<ValueId> ends(program.code.size(), -1);
  for (size_t n = 0; n < program.code.size(); ++n)
    if (program.code[n].code == Code::kEnd || program.code[n].code == Code::kEndIf)
      ends[program.code[n].src[0]] = static_cast<ValueId>(n);
  return ends;
}

inline bool IsLoop(const Instruction& i, How how) {
  return i.code == Code::kLoop && i.imm[1] == static_cast<int64_t>(how);
}

class Copier {
 public:
  explicit Copier(const Program& old) : old_(old), made_(old.code.size(), -1), ends_(EndsOf(old)) {
    b_.SetReadOnly(ReadOnlySlots(old));
    b_.SetAround(old);
  }
  Program Take() { return b_.Take(old_.buffer_count); }

 protected:
  const Instruction& at(ValueId n) const { return old_.code[n]; }
  ValueId size() const { return static_cast<ValueId>(old_.code.size()); }

  Instruction WithNewSources(ValueId n) const {
    Instruction i = at(n);
    for (ValueId& s : i.src) s = made_[s];
    return i;
  }
  void Copy(ValueId n) { made_[n] = b_.Add(WithNewSources(n)); }

  // `body`, written out once for each value of the counter.
  template <typename Body>
  void WriteOut(ValueId loop, const Body& body) {
    for (int64_t i = 0; i < at(loop).imm[0]; ++i) {
      made_[loop] = b_.Int(i);
      body();
    }
  }

  const Program& old_;
  ProgramBuilder b_;
  std::vector<ValueId> made_;  // by old number
  std::vector<ValueId> ends_;
};

}  // namespace outboard::program
