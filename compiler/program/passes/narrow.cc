// Vectors of i64 that comparisons and conversions to f32 alone read, as vectors of i32 where all of
// their numbers fit: a register then has as many lanes as those of the f32 beside them, as in a
// causal mask. What an index needs too stays i64, since computing both would be slower.
#include <algorithm>

#include "compiler/program/expand.h"
#include "compiler/program/passes/copier.h"
#include "compiler/program/passes/forms.h"

namespace outboard::program {
namespace {

class Narrower : Copier {
 public:
  explicit Narrower(const Program& program)
      : Copier(program), fits_(size()), wanted_(size()), narrow_(size(), -1) {
    FindWhatFits();
    while (DropWhatIsUsedElsewhere()) {
    }
    for (ValueId n = 0; n < size(); ++n)
      if (Reads(n) || (fits_[n] && at(n).code == Code::kAlu))
        for (const ValueId s : at(n).src) wanted_[s] = true;
  }
  using Copier::Take;

  void Run() {
    for (ValueId n = 0; n < size(); ++n) {
      if (wanted_[n]) narrow_[n] = b_.Add(Narrowed(n));
      Instruction i = WithNewSources(n);
      if (Reads(n))
        for (size_t s = 0; s < i.src.size(); ++s) i.src[s] = narrow_[at(n).src[s]];
      made_[n] = b_.Add(std::move(i));
    }
  }

 private:
  void FindWhatFits() {
    const std::vector<ValueInterval> intervals = IntervalsOf(old_);
    for (ValueId n = 0; n < size(); ++n) {
      const Instruction& i = at(n);
      if (i.dtype != DType::kI64 || i.lanes == 1 || !intervals[n].FitsI32()) continue;
      const bool arithmetic = i.code == Code::kAlu && (i.op == Op::kAdd || i.op == Op::kMul ||
                                                       i.op == Op::kIDiv || i.op == Op::kMod);
      fits_[n] = i.code == Code::kLanes || (arithmetic && SourcesFit(i));
    }
  }
  bool SourcesFit(const Instruction& i) const {
    return std::all_of(i.src.begin(), i.src.end(), [&](ValueId s) { return fits_[s]; });
  }
  // Whether n shall read i32.
  bool Reads(ValueId n) const {
    const Instruction& i = at(n);
    const bool compares = i.code == Code::kAlu && IsCompare(i.op);
    const bool converts = i.code == Code::kCast && i.dtype == DType::kF32;
    return i.lanes > 1 && (compares || converts) && SourcesFit(i);
  }

  // Returns whether anything has changed. A vector made of scalars may be made twice.
  bool DropWhatIsUsedElsewhere() {
    bool changed = false;
    for (ValueId n = size() - 1; n >= 0; --n) {
      if (at(n).code == Code::kAlu && fits_[n] && !SourcesFit(at(n))) {
        fits_[n] = false;
        changed = true;
      }
      if (Reads(n) || (fits_[n] && at(n).code == Code::kAlu)) continue;
      for (const ValueId s : at(n).src) {
        changed = changed || (fits_[s] && at(s).code == Code::kAlu);
        if (at(s).code == Code::kAlu) fits_[s] = false;
      }
    }
    return changed;
  }

  Instruction Narrowed(ValueId n) {
    Instruction i = at(n);
    i.dtype = DType::kI32;
    for (ValueId& s : i.src) s = i.code == Code::kLanes ? Scalar(s) : narrow_[s];
    return i;
  }
  ValueId Scalar(ValueId n) {
    int64_t number = 0;
    if (!b_.IsConst(made_[n], &number)) return b_.Cast(made_[n], DType::kI32);
    return b_.Const(DType::kI32, static_cast<double>(number));
  }

  std::vector<bool> fits_;  // and no i64 is needed, unless of scalars
  std::vector<bool> wanted_;
  std::vector<ValueId> narrow_;  // by old number
};

}  // namespace

Program NarrowLanes(const Program& program) {
  Narrower pass(program);
  pass.Run();
  return pass.Take();
}

}  // namespace outboard::program
