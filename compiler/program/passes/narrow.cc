// Vectors of i64 that a comparison or a conversion to f32 reads, as vectors of i32 where all of
// their numbers fit: a register then has all lanes of the f32 beside them, as in a causal mask.
#include <algorithm>

#include "compiler/program/expand.h"
#include "compiler/program/passes/copier.h"
#include "compiler/program/passes/forms.h"

namespace outboard::program {
namespace {

class Narrower : Copier {
 public:
  explicit Narrower(const Program& program)
      : Copier(program), fits_(size(), false), wanted_(size(), false), narrow_(size(), -1) {
    FindWhatFits();
    FindWanted();
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

  void FindWanted() {
    for (ValueId n = size() - 1; n >= 0; --n)
      if (Reads(n) || (wanted_[n] && at(n).code == Code::kAlu))
        for (const ValueId s : at(n).src) wanted_[s] = true;
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

  std::vector<bool> fits_, wanted_;
  std::vector<ValueId> narrow_;  // by old number
};

}  // namespace

Program NarrowLanes(const Program& program) {
  Narrower pass(program);
  pass.Run();
  return pass.Take();
}

}  // namespace outboard::program
