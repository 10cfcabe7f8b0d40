#include "compiler/program/passes/accesses.h"

namespace outboard::program {

std::pair<ValueId, int64_t> WithoutConstants(const Program& program, ValueId index) {
  const auto at = [&](ValueId n) -> const Instruction& { return program.code[n]; };
  int64_t sum = 0;
  for (; at(index).code == Code::kAlu && at(index).op == Op::kAdd &&
         at(at(index).src[1]).code == Code::kConst;
       index = at(index).src[0])
    sum += at(at(index).src[1]).imm[0];
  return {index, sum};
}

std::vector<bool> BranchesOfAccesses(const Program& program) {
  std::vector<bool> only(program.code.size());
  std::vector<ValueId> open;
  for (size_t n = 0; n < program.code.size(); ++n) {
    const Code code = program.code[n].code;
    if (!IsPure(code) && code != Code::kLoad && code != Code::kStore && code != Code::kIf &&
        code != Code::kEndIf)
      for (const ValueId scope : open) only[scope] = false;
    if (code == Code::kEnd || code == Code::kEndIf) open.pop_back();
    if (code != Code::kIf && code != Code::kLoop) continue;
    only[n] = code == Code::kIf;
    open.push_back(static_cast<ValueId>(n));
  }
  return only;
}

}  // namespace outboard::program
