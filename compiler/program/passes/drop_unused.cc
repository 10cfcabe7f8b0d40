// Instructions whose value is not used, and stores to memory of the thread that is never read.
#include "compiler/program/expand.h"
#include "compiler/program/passes/copier.h"

namespace outboard::program {

Program DropUnused(const Program& program) {
  const size_t count = program.code.size();
  std::vector<bool> used(count, false);
  // A memory that is only stored to is not used; one of the caller's is.
  for (size_t n = count; n-- > 0;) {
    const Instruction& i = program.code[n];
    bool stays = used[n];
    switch (i.code) {
      case Code::kLoad:
      case Code::kAlloc: break;
      case Code::kSpecial: stays = true; break;  // says how many blocks and threads there are
      case Code::kStore: stays = true; break;
      default: stays = stays || !IsPure(i.code); break;
    }
    used[n] = stays;
    if (stays)
      for (const ValueId s : i.src) used[s] = true;
  }
  ProgramBuilder b;
  b.SetReadOnly(ReadOnlySlots(program));
  b.SetAround(program);
  std::vector<ValueId> made(count, -1);
  for (size_t n = 0; n < count; ++n) {
    if (!used[n]) continue;
    Instruction i = program.code[n];
    for (ValueId& s : i.src) s = made[s];
    made[n] = b.Add(std::move(i));
  }
  return b.Take(program.buffer_count);
}

}  // namespace outboard::program
