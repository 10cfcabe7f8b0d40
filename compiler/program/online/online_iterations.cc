// Which iterations of an online kernel are run for the block's rows: from the one with the first
// visible step to that with the last one (compiler/optimize/operands/visible.h), below the end of
// the steps.
#include <algorithm>

#include "compiler/divide_up.h"
#include "compiler/program/online/online_elements.h"

namespace outboard::program {

// Of the tile, below the end of rows.
ValueId OnlineElements::LastRow() {
  ValueId rows = b_.Int(plan_.row_count);
  if (plan_.rows.size() == 1)  // there may be one row, and no range of them
    if (const UOp* const end = kernel_.ranges[plan_.rows[0]].end()) rows = point_.Emit(end);
  return b_.Min(b_.Plus(origin_, b_.Int(tile_.rows() - 1)), b_.Plus(rows, b_.Int(-1)));
}

// Of the tile's rows.
ValueId OnlineElements::Extreme(const codegen::RowForm& form, bool greatest) {
  ValueId sum = b_.Int(form.constant);
  for (const auto& [scalar, coefficient] : form.scalars)
    sum = b_.Plus(sum, b_.Times(point_.Emit(scalar), coefficient));
  for (const auto& [range, coefficient] : form.terms) {
    ValueId value = ranges_[range].value;
    if (!plan_.rows.empty() && range == plan_.rows.back())
      value = (coefficient > 0) == greatest ? LastRow() : origin_;
    sum = b_.Plus(sum, b_.Times(value, coefficient));
  }
  return b_.Divide(sum, form.divisor);
}

bool OnlineElements::StepsTakeTurns() const {
  return std::any_of(plan_.visible.last.begin(), plan_.visible.last.end(),
                     [](const codegen::RowForm& form) { return form.divisor > 1; });
}

bool OnlineElements::HasWholeIterations() const {
  const bool ends = plan_.visible.range >= 0 && !plan_.visible.last.empty();
  return (ends || StepsEnd() || extent_ % tile_.steps != 0) && plan_.visible.first.empty();
}

ValueId OnlineElements::WholeIterations() {
  ValueId steps = steps_;
  for (const codegen::RowForm& form : plan_.visible.last)
    steps = b_.Min(steps, b_.Plus(Extreme(form, false), b_.Int(1)));
  return b_.Min(b_.Divide(b_.Max(steps, b_.Int(0)), tile_.steps), count_);
}

bool OnlineElements::WholeIterationsAreLast() const {
  return plan_.visible.range >= 0 && !plan_.visible.first.empty() &&
         plan_.visible.last.empty() && !StepsEnd() && extent_ % tile_.steps == 0;
}

ValueId OnlineElements::CutIterations() {
  ValueId steps = b_.Int(0);
  for (const codegen::RowForm& form : plan_.visible.first)
    steps = b_.Max(steps, Extreme(form, true));
  const ValueId cut = b_.Divide(b_.Plus(steps, b_.Int(tile_.steps - 1)), tile_.steps);
  return b_.Min(b_.Max(b_.Plus(cut, b_.Negated(first_)), b_.Int(0)), count_);
}

// Which iterations are run: for all rows of the tile, from the first visible step to the last one.
void OnlineElements::OpenWindow() {
  const codegen::VisibleSteps& visible = plan_.visible;
  const UOp* const ends = kernel_.ranges[plan_.range].end();
  steps_ = ends == nullptr ? b_.Int(extent_) : point_.Emit(ends);
  last_step_ = b_.Plus(steps_, b_.Int(-1));
  // Where there is none an iteration is run all the same, with every step masked.
  if (StepsMayBeNone()) last_step_ = b_.Max(last_step_, b_.Int(0));
  const ValueId all = ends == nullptr
                          ? b_.Int(iterations_)
                          : b_.Plus(b_.Divide(last_step_, tile_.steps), b_.Int(1));
  windowed_ = ends != nullptr;
  count_ = all;
  if (visible.range < 0) return;
  ValueId first = b_.Int(0), last = last_step_;
  for (const codegen::RowForm& form : visible.first)
    first = b_.Max(first, Extreme(form, false));
  for (const codegen::RowForm& form : visible.last) last = b_.Min(last, Extreme(form, true));
  if (!visible.first.empty()) {
    first = b_.Min(first, last_step_);
    first_ = b_.Divide(first, tile_.steps);
  }
  last = b_.Max(last, first);  // at least one
  const ValueId end = b_.Plus(b_.Divide(last, tile_.steps), b_.Int(1));
  count_ = first_ < 0 ? end : b_.Plus(end, b_.Negated(first_));
  windowed_ = true;
  if (visible.guards.empty()) return;
  const ValueId fail = AnyGuardFails(first_ < 0 ? b_.Int(0) : first_, end);
  if (first_ >= 0) first_ = b_.Alu(Op::kWhere, DType::kI64, {fail, b_.Int(0), first_});
  count_ = b_.Alu(Op::kWhere, DType::kI64, {fail, all, count_});
}

bool OnlineElements::IsOfRows(const UOp* guard) const {
  return (plan_.RangesIn(guard) & RangeSet{1} << plan_.range) == 0;
}

// Notes in `found` whether a guard that is of rows, or one that is not, is not 0 where `hidden`
// (-1: everywhere).
void OnlineElements::LookAtGuards(bool of_rows, ValueId hidden, ValueId found) {
  for (const UOp* guard : plan_.visible.guards) {
    if (IsOfRows(guard) != of_rows) continue;
    const ValueId other =
        b_.Alu(Op::kCmpNe, DType::kBool, {point_.Emit(guard), b_.Const(guard->dtype, 0)});
    b_.Store(found, b_.Int(0),
             b_.Alu(Op::kWhere, DType::kF32,
                    {b_.And(hidden, other), b_.Const(DType::kF32, 1),
                     b_.Load(found, b_.Int(0))}));
  }
}

// Whether a guard is not 0: one of steps in a step before the iteration `first` or from `end` on,
// one of rows in a row of the tile. Threads look at different ones, and tell each other.
ValueId OnlineElements::AnyGuardFails(ValueId first, ValueId end) {
  const int64_t threads = tile_.threads();
  const ValueId zero = b_.Const(DType::kF32, 0);
  const ValueId found = b_.Alloc(Space::kPrivate, DType::kF32, 1);
  b_.Store(found, b_.Int(0), zero);
  const auto has = [&](bool of_rows) {
    return std::any_of(plan_.visible.guards.begin(), plan_.visible.guards.end(),
                       [&](const UOp* guard) { return IsOfRows(guard) == of_rows; });
  };
  if (has(/*of_rows=*/false)) {
    const ValueId loop = b_.Loop(DivideUp(extent_, threads));
    point_.OpenScope();
    const ValueId step = b_.Min(b_.Plus(b_.Times(loop, threads), thread_), last_step_);
    ranges_.Open(plan_.range, step);
    const ValueId iteration = b_.Divide(step, tile_.steps);
    const ValueId hidden =
        b_.Alu(Op::kOr, DType::kBool,
               {b_.Less(iteration, first), b_.Less(b_.Plus(end, b_.Int(-1)), iteration)});
    LookAtGuards(/*of_rows=*/false, hidden, found);
    ranges_.Close(plan_.range);
    point_.CloseScope();
    b_.End(loop);
  }
  if (has(/*of_rows=*/true)) {
    const ValueId loop = b_.Loop(DivideUp(tile_.rows(), threads));
    point_.OpenScope();
    const ValueId row = b_.Plus(origin_, b_.Plus(b_.Times(loop, threads), thread_));
    ranges_.OpenAll(plan_.rows, b_.Min(row, LastRow()));
    LookAtGuards(/*of_rows=*/true, -1, found);
    ranges_.CloseAll(plan_.rows);
    point_.CloseScope();
    b_.End(loop);
  }
  const ValueId any = OverThreads(Op::kMax, b_.Load(found, b_.Int(0)), kWarpThreads);
  const ValueId branch = b_.If(b_.Alu(Op::kCmpEq, DType::kBool, {lane_, b_.Int(0)}));
  b_.Store(guards_, b_.Divide(thread_, kWarpThreads), any);
  b_.EndIf(branch);
  b_.Barrier();
  ValueId fails = zero;
  for (int64_t warp = 0; warp < threads / kWarpThreads; ++warp)
    fails = b_.Alu(Op::kMax, DType::kF32, {fails, b_.Load(guards_, b_.Int(warp))});
  return b_.Less(zero, fails);
}

ValueId OnlineElements::NumberOf(ValueId run_before) {
  return first_ < 0 ? run_before
                    : b_.Min(b_.Plus(first_, run_before), b_.Int(iterations_ - 1));
}

}  // namespace outboard::program
