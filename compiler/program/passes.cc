// The passes after lowering. Each rebuilds the program with a ProgramBuilder.
#include <algorithm>
#include <optional>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/program/expand.h"
#include "compiler/program/spec.h"
#include "compiler/proof/program_range.h"

namespace outboard::program {
namespace {

constexpr size_t kInstructionsMax = 400'000;

std::vector<bool> ReadOnlySlots(const Program& program) {
  std::vector<bool> read_only(program.buffer_count, true);
  for (const Instruction& i : program.code)
    if (i.code == Code::kStore && program.code[i.src[0]].code == Code::kBuffer)
      read_only[program.code[i.src[0]].imm[0]] = false;
  return read_only;
}

// Maps the instruction that opens a scope to the one that closes it.
std::vector<ValueId> EndsOf(const Program& program) {
  std::vector<ValueId> ends(program.code.size(), -1);
  for (size_t n = 0; n < program.code.size(); ++n)
    if (program.code[n].code == Code::kEnd || program.code[n].code == Code::kEndIf)
      ends[program.code[n].src[0]] = static_cast<ValueId>(n);
  return ends;
}

// Copies a program piece by piece.
class Copier {
 public:
  explicit Copier(const Program& old) : old_(old), made_(old.code.size(), -1), ends_(EndsOf(old)) {
    b_.SetReadOnly(ReadOnlySlots(old));
  }
  Program Take() { return b_.Take(old_.buffer_count); }

 protected:
  const Instruction& at(ValueId n) const { return old_.code[n]; }

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

class Unroller : Copier {
 public:
  using Copier::Copier;
  using Copier::Take;

  // Depth: the loops around each other.
  void Run(ValueId begin, ValueId end) {
    for (ValueId n = begin; n < end; ++n) {
      if (at(n).code == Code::kLoop && at(n).imm[1] == static_cast<int64_t>(How::kUnroll)) {
        const ValueId inside = n + 1, last = ends_[n];
        WriteOut(n, [&] { Run(inside, last); });
        n = last;
      } else {
        Copy(n);
      }
    }
  }
};

// One value a lane is a vector, an affine i64 (`base` + `step` * lane), or the same in all lanes.
class LaneMaker : Copier {
 public:
  using Copier::Copier;
  using Copier::Take;

  void Run(ValueId begin, ValueId end) {
    for (ValueId n = begin; n < end; ++n) {
      if (at(n).code == Code::kLoop && at(n).imm[1] == static_cast<int64_t>(How::kVector)) {
        const ValueId inside = n + 1, last = ends_[n];
        if (HasForm(n, last)) {
          Lanes(n, last);
        } else {
          WriteOut(n, [&] { Run(inside, last); });
        }
        n = last;
      } else {
        Copy(n);
      }
    }
  }

 private:
  struct LinearSum {
    ValueId base = -1;
    int64_t step = 0;
  };

  // Straight code whose stores go to a place for each lane.
  bool HasForm(ValueId loop, ValueId end) const {
    if (at(loop).imm[0] < 2 || at(loop).imm[2] > kLanesMax || !at(loop).src.empty()) return false;
    absl::flat_hash_set<ValueId> varies = {loop};
    for (ValueId n = loop + 1; n < end; ++n) {
      const Instruction& i = at(n);
      const bool known = IsPure(i.code) || i.code == Code::kLoad || i.code == Code::kStore;
      if (!known || i.lanes > 1) return false;
      if (std::any_of(i.src.begin(), i.src.end(), [&](ValueId s) { return varies.contains(s); }))
        varies.insert(n);
      if (i.code == Code::kStore && !varies.contains(i.src[1])) return false;
    }
    return true;
  }

  void Lanes(ValueId loop, ValueId end) {
    lanes_ = static_cast<int>(std::max(at(loop).imm[2], at(loop).imm[0]));
    linear_.clear();
    vectors_.clear();
    linear_[loop] = {b_.Int(0), 1};
    mask_ = -1;
    if (at(loop).imm[0] < lanes_) {
      Instruction mask{.code = Code::kLanes, .dtype = DType::kBool, .lanes = lanes_};
      for (int64_t lane = 0; lane < lanes_; ++lane)
        mask.src.push_back(b_.Const(DType::kBool, lane < at(loop).imm[0]));
      mask_ = b_.Add(std::move(mask));
    }
    for (ValueId n = loop + 1; n < end; ++n) {
      const Instruction& i = at(n);
      const bool varies = std::any_of(i.src.begin(), i.src.end(), [&](ValueId s) {
        return linear_.contains(s) || vectors_.contains(s);
      });
      if (!varies) {
        Copy(n);
      } else if (i.code == Code::kLoad || i.code == Code::kStore) {
        Access(n);
      } else if (const auto linear = LinearOf(n)) {
        linear_[n] = *linear;
      } else {
        Instruction wide = i;
        wide.lanes = lanes_;
        for (ValueId& s : wide.src) s = Wide(s);
        vectors_[n] = b_.Add(std::move(wide));
      }
    }
  }

  std::optional<LinearSum> LinearOf(ValueId n) {
    const Instruction& i = at(n);
    if (i.code != Code::kAlu || i.dtype != DType::kI64 || i.src.size() != 2) return std::nullopt;
    const auto of = [&](ValueId s) -> std::optional<LinearSum> {
      if (const auto it = linear_.find(s); it != linear_.end()) return it->second;
      if (vectors_.contains(s)) return std::nullopt;
      return LinearSum{made_[s], 0};
    };
    const auto a = of(i.src[0]), b = of(i.src[1]);
    if (!a || !b) return std::nullopt;
    if (i.op == Op::kAdd) return LinearSum{b_.Plus(a->base, b->base), a->step + b->step};
    if (i.op != Op::kMul) return std::nullopt;
    int64_t factor = 0;
    const auto times = [&](const LinearSum& x) -> std::optional<LinearSum> {
      if (factor > (int64_t{1} << 31) || factor < -(int64_t{1} << 31) ||
          std::abs(x.step) > (int64_t{1} << 31))
        return std::nullopt;
      return LinearSum{b_.Times(x.base, factor), x.step * factor};
    };
    if (b->step == 0 && b_.IsConst(b->base, &factor)) return times(*a);
    if (a->step == 0 && b_.IsConst(a->base, &factor)) return times(*b);
    return std::nullopt;
  }

  ValueId Wide(ValueId s) {
    if (const auto it = vectors_.find(s); it != vectors_.end()) return it->second;
    const auto it = linear_.find(s);
    if (it == linear_.end()) return b_.Splat(made_[s], lanes_);
    Instruction steps{.code = Code::kLanes, .dtype = DType::kI64, .lanes = lanes_};
    for (int64_t lane = 0; lane < lanes_; ++lane)
      steps.src.push_back(b_.Int(lane * it->second.step));
    return vectors_[s] = b_.Alu(Op::kAdd, DType::kI64,
                                {b_.Splat(it->second.base, lanes_), b_.Add(std::move(steps))});
  }

  void Access(ValueId n) {
    const Instruction& i = at(n);
    const bool load = i.code == Code::kLoad;
    Instruction out = i;
    out.lanes = lanes_;
    out.src[0] = made_[i.src[0]];
    const auto it = linear_.find(i.src[1]);
    out.src[1] = it != linear_.end() && it->second.step == 1 ? it->second.base : Wide(i.src[1]);
    if (!load) out.src[2] = Wide(i.src[2]);
    const size_t mask = load ? 2 : 3;
    if (i.src.size() > mask) {
      out.src[mask] = Wide(i.src[mask]);
      if (load) out.src[3] = Wide(i.src[3]);
      if (mask_ >= 0) out.src[mask] = b_.Alu(Op::kAnd, DType::kBool, {out.src[mask], mask_});
    } else if (mask_ >= 0) {
      out.src.push_back(mask_);
      if (load) out.src.push_back(b_.Splat(b_.Const(i.dtype, 0), lanes_));
    }
    const ValueId made = b_.Add(std::move(out));
    if (load) vectors_[n] = made;
  }

  int lanes_ = 1;
  ValueId mask_ = -1;  // of the lanes in use; -1: all
  absl::flat_hash_map<ValueId, LinearSum> linear_;
  absl::flat_hash_map<ValueId, ValueId> vectors_;
};

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
};

}  // namespace

Program Unroll(const Program& program) {
  Unroller pass(program);
  pass.Run(0, static_cast<ValueId>(program.code.size()));
  return pass.Take();
}

Program Vectorize(const Program& program) {
  LaneMaker pass(program);
  pass.Run(0, static_cast<ValueId>(program.code.size()));
  return pass.Take();
}

absl::StatusOr<Program> GuardLoads(const Program& program) {
  absl::flat_hash_set<ValueId> unproved;
  for (const ValueId n : proof::UnprovedAccesses(program)) {
    if (program.code[n].code != Code::kLoad) return proof::CheckInRange(program);
    unproved.insert(n);
  }
  if (unproved.empty()) return program;
  Guarder pass(program);
  pass.Run(unproved);
  return pass.Take();
}

// Scopes become lists, so that an instruction may be appended to an outer one, before the scope
// that is being read.
Program Hoist(const Program& program) {
  const std::vector<bool> read_only = ReadOnlySlots(program);
  struct Scope {
    ValueId opener = -1;
    bool loads = true;  // whether a load may move out of it
    std::vector<ValueId> code;
  };
  std::vector<Scope> open(1);
  std::vector<int> depth(program.code.size(), 0);  // of the scope where a value is made
  for (size_t number = 0; number < program.code.size(); ++number) {
    const auto n = static_cast<ValueId>(number);
    const Instruction& i = program.code[n];
    if (i.code == Code::kLoop || i.code == Code::kIf) {
      depth[n] = static_cast<int>(open.size());  // seen inside of it only
      open.push_back({n, i.code == Code::kLoop && i.imm[0] > 0 && i.src.empty(), {n}});
      continue;
    }
    if (i.code == Code::kEnd || i.code == Code::kEndIf) {
      open.back().code.push_back(n);
      Scope closed = std::move(open.back());
      open.pop_back();
      open.back().code.insert(open.back().code.end(), closed.code.begin(), closed.code.end());
      continue;
    }
    int to = static_cast<int>(open.size()) - 1;
    const bool reads = i.code == Code::kLoad && program.code[i.src[0]].code == Code::kBuffer &&
                       read_only[program.code[i.src[0]].imm[0]];
    if (IsPure(i.code) || reads) {
      int least = 0;
      for (const ValueId s : i.src) least = std::max(least, depth[s]);
      while (to > least && (!reads || open[to].loads)) --to;
    }
    depth[n] = to;
    open[to].code.push_back(n);
  }
  OB_CHECK(open.size() == 1);
  ProgramBuilder b;
  b.SetReadOnly(read_only);
  std::vector<ValueId> made(program.code.size(), -1);
  for (const ValueId n : open[0].code) {
    Instruction i = program.code[n];
    for (ValueId& s : i.src) s = made[s];
    made[n] = b.Add(std::move(i));
  }
  return b.Take(program.buffer_count);
}

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
  std::vector<ValueId> made(count, -1);
  for (size_t n = 0; n < count; ++n) {
    if (!used[n]) continue;
    Instruction i = program.code[n];
    for (ValueId& s : i.src) s = made[s];
    made[n] = b.Add(std::move(i));
  }
  return b.Take(program.buffer_count);
}

namespace {

// Every pass is one line here; its result is checked before the next pass reads it.
absl::StatusOr<Program> RunPasses(absl::StatusOr<Program> lowered, bool lanes,
                                  std::vector<PassResult>* passes) {
  if (!lowered.ok()) return lowered.status();
  Program program = *std::move(lowered);
  const auto after = [&](std::string_view pass, Phase phase) {
    if (passes != nullptr) passes->push_back({std::string(pass), program});
    if (program.code.size() > kInstructionsMax)
      return absl::Status(absl::ResourceExhaustedError(absl::StrCat(
          "program: ", program.code.size(), " instructions after pass ", std::string(pass))));
    return CheckProgram(program, pass, phase);
  };
  OB_RETURN_IF_ERROR(after("lower", Phase::kExpanding));
  if (lanes) {
    program = Unroll(program);
    OB_RETURN_IF_ERROR(after("unroll", Phase::kExpanding));
    program = Vectorize(program);
    OB_RETURN_IF_ERROR(after("vectorize", Phase::kFinal));
  }
  OB_ASSIGN_OR_RETURN(program, GuardLoads(program));
  OB_RETURN_IF_ERROR(after("guard loads", Phase::kFinal));
  program = Hoist(program);
  OB_RETURN_IF_ERROR(after("hoist", Phase::kFinal));
  program = DropUnused(program);
  OB_RETURN_IF_ERROR(after("drop unused", Phase::kFinal));
  OB_RETURN_IF_ERROR(proof::CheckInRange(program));
  return program;
}

}  // namespace

absl::StatusOr<Program> ExpandPlan(const codegen::LoopNest& kernel, const codegen::LoopPlan& plan,
                                   std::vector<PassResult>* passes) {
  return RunPasses(LowerPlan(kernel, plan), /*lanes=*/true, passes);
}

absl::StatusOr<Program> ExpandThreads(const codegen::LoopNest& kernel, const ThreadMapping& mapping,
                                      std::vector<PassResult>* passes) {
  return RunPasses(LowerThreads(kernel, mapping), /*lanes=*/false, passes);
}

}  // namespace outboard::program
