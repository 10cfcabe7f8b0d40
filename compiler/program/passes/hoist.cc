// Loop-invariant instructions, out of loops.
#include <algorithm>

#include "base/check.h"
#include "compiler/program/expand.h"
#include "compiler/program/passes/copier.h"
#include "compiler/program/passes/placement.h"

namespace outboard::program {

Placement::Placement(const Program& program) : depth(program.code.size(), 0) {
  const std::vector<bool> read_only = ReadOnlySlots(program);
  // By open scope: whether a load may move out of it. A loop may not run at all, and a load that is
  // behind a condition may be in range only where that holds.
  std::vector<bool> loads = {true};
  for (size_t number = 0; number < program.code.size(); ++number) {
    const auto n = static_cast<ValueId>(number);
    const Instruction& i = program.code[n];
    const int here = static_cast<int>(loads.size()) - 1;
    const bool blocks = i.code == Code::kSpecial && i.imm[0] == static_cast<int64_t>(Grid::kBlock);
    if (i.code == Code::kLoop || i.code == Code::kIf || (blocks && here == 0)) {
      depth[n] = static_cast<int>(loads.size());  // seen inside of it only
      loads.push_back(blocks || (i.code == Code::kLoop && i.imm[0] > 0 && i.src.empty()));
      if (blocks) first_block = n;
      continue;
    }
    depth[n] = here;
    if (i.code == Code::kEnd || i.code == Code::kEndIf) {
      loads.pop_back();
      continue;
    }
    const bool reads = i.code == Code::kLoad && program.code[i.src[0]].code == Code::kBuffer &&
                       read_only[program.code[i.src[0]].imm[0]];
    if (!IsPure(i.code) && !reads) continue;
    int least = 0;
    for (const ValueId s : i.src) least = std::max(least, depth[s]);
    while (depth[n] > least && (!reads || loads[depth[n]])) --depth[n];
  }
}

// Scopes become lists, so that an instruction may be appended to an outer one, before the scope
// that is being read.
Program Hoist(const Program& program) {
  const Placement placement(program);
  std::vector<std::vector<ValueId>> open(1);
  const auto close = [&] {
    const std::vector<ValueId> closed = std::move(open.back());
    open.pop_back();
    open.back().insert(open.back().end(), closed.begin(), closed.end());
  };
  for (size_t number = 0; number < program.code.size(); ++number) {
    const auto n = static_cast<ValueId>(number);
    const Code code = program.code[n].code;
    if (code == Code::kLoop || code == Code::kIf || n == placement.first_block) open.emplace_back();
    open[placement.depth[n]].push_back(n);
    if (code == Code::kEnd || code == Code::kEndIf) close();
  }
  if (placement.first_block >= 0) close();
  OB_CHECK(open.size() == 1);
  ProgramBuilder b;
  b.SetReadOnly(ReadOnlySlots(program));
  std::vector<ValueId> made(program.code.size(), -1);
  for (const ValueId n : open[0]) {
    Instruction i = program.code[n];
    for (ValueId& s : i.src) s = made[s];
    made[n] = b.Add(std::move(i));
  }
  return b.Take(program.buffer_count);
}

}  // namespace outboard::program
