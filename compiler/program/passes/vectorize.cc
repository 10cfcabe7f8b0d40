// Loops marked kVector as vector instructions.
#include <algorithm>
#include <optional>

#include "absl/container/flat_hash_set.h"
#include "compiler/program/expand.h"
#include "compiler/program/passes/copier.h"

namespace outboard::program {
namespace {

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

}  // namespace

Program Vectorize(const Program& program) {
  LaneMaker pass(program);
  pass.Run(0, static_cast<ValueId>(program.code.size()));
  return pass.Take();
}

}  // namespace outboard::program
