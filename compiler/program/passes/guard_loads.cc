// A mask for each load or copy that is not proved to be in range.
#include "absl/container/flat_hash_set.h"
#include "compiler/program/expand.h"
#include "compiler/program/passes/copier.h"
#include "compiler/proof/program_range.h"

namespace outboard::program {
namespace {

class Guarder : Copier {
 public:
  using Copier::Copier;
  using Copier::Take;

  void Run(const absl::flat_hash_set<ValueId>& unproved) {
    for (ValueId n = 0; n < static_cast<ValueId>(old_.code.size()); ++n) {
      if (!unproved.contains(n)) {
        Copy(n);
        continue;
      }
      if (at(n).code == Code::kCopy) {
        GuardCopy(n);
        continue;
      }
      Instruction load = WithNewSources(n);
      const int64_t elements = at(at(n).src[0]).imm[1];
      const auto in_range = [&](ValueId index, int64_t offset) {
        return b_.Alu(
            Op::kAnd, DType::kBool,
            {b_.Less(b_.Int(-1 - offset), index), b_.Less(index, b_.Int(elements - offset))});
      };
      const ValueId index = load.src[1];
      ValueId guard = -1;
      if (load.lanes == 1) {
        guard = in_range(index, 0);
      } else {
        Instruction lanes{.code = Code::kLanes, .dtype = DType::kBool, .lanes = load.lanes};
        for (int lane = 0; lane < load.lanes; ++lane)
          lanes.src.push_back(b_.at(index).lanes == 1 ? in_range(index, lane)
                                                      : in_range(b_.Add({.code = Code::kLane,
                                                                         .dtype = DType::kI64,
                                                                         .src = {index},
                                                                         .imm = {lane, 0, 0}}),
                                                                 0));
        guard = b_.Add(std::move(lanes));
      }
      if (load.src.size() == 4) {
        load.src[2] = b_.Alu(Op::kAnd, DType::kBool, {guard, load.src[2]});
      } else {
        load.src.push_back(guard);
        load.src.push_back(b_.Splat(b_.Const(load.dtype, 0), load.lanes));
      }
      made_[n] = b_.Add(std::move(load));
    }
  }

 private:
  // Of its buffer: zeros are copied otherwise.
  void GuardCopy(ValueId n) {
    Instruction copy = WithNewSources(n);
    const int64_t ends = at(at(n).src[2]).imm[1] - (copy.imm[0] - 1);
    const ValueId index = copy.src[3];
    const ValueId guard =
        b_.Alu(Op::kAnd, DType::kBool, {b_.Less(b_.Int(-1), index), b_.Less(index, b_.Int(ends))});
    if (copy.src.size() == 5) {
      copy.src[4] = b_.Alu(Op::kAnd, DType::kBool, {guard, copy.src[4]});
    } else {
      copy.src.push_back(guard);
    }
    made_[n] = b_.Add(std::move(copy));
  }
};

}  // namespace

absl::StatusOr<Program> GuardLoads(const Program& program, const std::vector<ValueId>& unproved) {
  for (const ValueId n : unproved) {
    // A store is refused; so is a load of the program's own memory, which no pass may get wrong.
    const Instruction& access = program.code[n];
    const bool guarded =
        access.code == Code::kCopy ||
        (access.code == Code::kLoad && program.code[access.src[0]].code == Code::kBuffer);
    if (!guarded) return proof::NotInRange(program, n);
  }
  Guarder pass(program);
  pass.Run({unproved.begin(), unproved.end()});
  return pass.Take();
}

}  // namespace outboard::program
