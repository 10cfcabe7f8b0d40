#include "compiler/program/lower/online_elements.h"

#include <algorithm>
#include <limits>

#include "compiler/divide_up.h"

namespace outboard::program {

OnlineElements::OnlineElements(const OnlinePlan& plan)
    : low_(plan.kernel, nullptr),
      b_(low_.b_),
      kernel_(plan.kernel),
      plan_(plan),
      tile_(plan.tile),
      extent_(plan.kernel.ranges[plan.range].extent),
      times_(DivideUp(extent_, tile_.steps)),
      halves_(tile_.fragments * kRowsOfFragment),
      row_sums_(low_, {plan.rows, plan.row_count}, {plan.columns, plan.column_count},
                tile_.rows(), kFragment) {
  low_.mapped_ = kernel_.OutputSet();
  low_.units_ = UnitExponentialsOf(kernel_, plan.range);
  if (plan_.dtype == DType::kF32) return;
  const auto loaded = LoadedExponentialsOf(kernel_, plan.range);
  low_.units_.insert(loaded.begin(), loaded.end());
  low_.by_inverse_ = LoadedQuotientsOf(kernel_, plan.range, loaded);
}

const UnitExponential* OnlineElements::UnitOf(const UOp* max) const {
  const auto exponential = plan_.online.exponential_of.find(max);
  if (exponential == plan_.online.exponential_of.end()) return nullptr;
  return &low_.units_.at(exponential->second);
}

ValueId OnlineElements::WithFactor(const UOp* max, ValueId carried) {
  const UnitExponential* const unit = UnitOf(max);
  if (unit == nullptr || unit->factor == 1) return carried;
  return b_.Alu(Op::kMul, DType::kF32, {carried, b_.Const(DType::kF32, unit->factor)});
}

void OnlineElements::Place() {
  const int64_t tiles = DivideUp(plan_.row_count, tile_.rows()),
                blocks = plan_.batches * tiles * tile_.parts;
  const ValueId number = blocks > 1 ? b_.Special(Grid::kBlock, blocks) : b_.Int(0);
  part_ = b_.Modulo(number, tile_.parts);
  const ValueId block = b_.Divide(number, tile_.parts);
  thread_ = b_.Special(Grid::kThread, tile_.threads());
  lane_ = b_.Modulo(thread_, kWarpThreads);
  member_ = b_.Times(b_.Modulo(lane_, 4), 2);
  batch_ = b_.Divide(block, tiles);
  ValueId tile = b_.Modulo(block, tiles);
  // Rows that see the most steps come first, so that the last blocks to run are short.
  if (!plan_.visible.last.empty()) tile = b_.Plus(b_.Int(tiles - 1), b_.Times(tile, -1));
  origin_ = b_.Times(tile, tile_.rows());
}

void OnlineElements::SetWarp(ValueId warp) {
  warp_ = warp;
  first_row_ = b_.Plus(b_.Plus(origin_, b_.Times(warp_, kFragment * tile_.fragments)),
                       b_.Divide(lane_, 4));
}

ValueId OnlineElements::IfBelowEnds() {
  if (!plan_.visible.guards.empty())
    guards_ = b_.Alloc(Space::kShared, DType::kF32, tile_.threads() / kWarpThreads);
  low_.BindAll(plan_.batch, batch_);
  ValueId all = low_.ReachesBelowEnds(plan_.rows, origin_, tile_.rows());
  for (const int r : plan_.batch)
    if (const UOp* const end = kernel_.ranges[r].end())
      all = low_.And(all, b_.Less(low_.value_[r], low_.Emit(end)));
  return all < 0 ? -1 : b_.If(all);
}

// Of the tile, below the end of rows.
ValueId OnlineElements::LastRow() {
  ValueId rows = b_.Int(plan_.row_count);
  if (plan_.rows.size() == 1)  // there may be one row, and no range of them
    if (const UOp* const end = kernel_.ranges[plan_.rows[0]].end()) rows = low_.Emit(end);
  return low_.Least(b_.Plus(origin_, b_.Int(tile_.rows() - 1)), b_.Plus(rows, b_.Int(-1)));
}

// Of the tile's rows.
ValueId OnlineElements::Extreme(const codegen::RowForm& form, bool greatest) {
  ValueId sum = b_.Int(form.constant);
  for (const auto& [scalar, coefficient] : form.scalars)
    sum = b_.Plus(sum, b_.Times(low_.Emit(scalar), coefficient));
  for (const auto& [range, coefficient] : form.terms) {
    ValueId value = low_.value_[range];
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

bool OnlineElements::HasWholeTimes() const {
  const bool ends = plan_.visible.range >= 0 && !plan_.visible.last.empty();
  return (ends || StepsEnd() || extent_ % tile_.steps != 0) && plan_.visible.first.empty();
}

ValueId OnlineElements::WholeTimes() {
  ValueId steps = steps_;
  for (const codegen::RowForm& form : plan_.visible.last)
    steps = low_.Least(steps, b_.Plus(Extreme(form, false), b_.Int(1)));
  return low_.Least(b_.Divide(low_.Greatest(steps, b_.Int(0)), tile_.steps), count_);
}

bool OnlineElements::WholeTimesAreLast() const {
  return plan_.visible.range >= 0 && !plan_.visible.first.empty() &&
         plan_.visible.last.empty() && !StepsEnd() && extent_ % tile_.steps == 0;
}

ValueId OnlineElements::CutTimes() {
  ValueId steps = b_.Int(0);
  for (const codegen::RowForm& form : plan_.visible.first)
    steps = low_.Greatest(steps, Extreme(form, true));
  const ValueId times = b_.Divide(b_.Plus(steps, b_.Int(tile_.steps - 1)), tile_.steps);
  return low_.Least(low_.Greatest(b_.Plus(times, low_.Negated(first_)), b_.Int(0)), count_);
}

// Which times are run: for all rows of the tile, from the first visible step to the last one.
void OnlineElements::OpenWindow() {
  const codegen::VisibleSteps& visible = plan_.visible;
  const UOp* const ends = kernel_.ranges[plan_.range].end();
  steps_ = ends == nullptr ? b_.Int(extent_) : low_.Emit(ends);
  last_step_ = b_.Plus(steps_, b_.Int(-1));
  // Where there is none a time is run all the same, with every step masked.
  if (StepsMayBeNone()) last_step_ = low_.Greatest(last_step_, b_.Int(0));
  const ValueId all = ends == nullptr
                          ? b_.Int(times_)
                          : b_.Plus(b_.Divide(last_step_, tile_.steps), b_.Int(1));
  windowed_ = ends != nullptr;
  count_ = all;
  if (visible.range < 0) return;
  ValueId first = b_.Int(0), last = last_step_;
  for (const codegen::RowForm& form : visible.first)
    first = low_.Greatest(first, Extreme(form, false));
  for (const codegen::RowForm& form : visible.last) last = low_.Least(last, Extreme(form, true));
  if (!visible.first.empty()) {
    first = low_.Least(first, last_step_);
    first_ = b_.Divide(first, tile_.steps);
  }
  last = low_.Greatest(last, first);  // at least one
  const ValueId end = b_.Plus(b_.Divide(last, tile_.steps), b_.Int(1));
  count_ = first_ < 0 ? end : b_.Plus(end, low_.Negated(first_));
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
        b_.Alu(Op::kCmpNe, DType::kBool, {low_.Emit(guard), b_.Const(guard->dtype, 0)});
    b_.Store(found, b_.Int(0),
             b_.Alu(Op::kWhere, DType::kF32,
                    {low_.And(hidden, other), b_.Const(DType::kF32, 1),
                     b_.Load(found, b_.Int(0))}));
  }
}

// Whether a guard is not 0: one of steps in a step before the time `first` or from the time `end`
// on, one of rows in a row of the tile. Threads look at different ones, and tell each other.
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
    low_.Enter();
    const ValueId step = low_.Least(b_.Plus(b_.Times(loop, threads), thread_), last_step_);
    low_.BindPlain(plan_.range, step);
    const ValueId time = b_.Divide(step, tile_.steps);
    const ValueId hidden =
        b_.Alu(Op::kOr, DType::kBool,
               {b_.Less(time, first), b_.Less(b_.Plus(end, b_.Int(-1)), time)});
    LookAtGuards(/*of_rows=*/false, hidden, found);
    low_.Unbind(plan_.range);
    low_.Leave();
    b_.End(loop);
  }
  if (has(/*of_rows=*/true)) {
    const ValueId loop = b_.Loop(DivideUp(tile_.rows(), threads));
    low_.Enter();
    const ValueId row = b_.Plus(origin_, b_.Plus(b_.Times(loop, threads), thread_));
    low_.BindAll(plan_.rows, low_.Least(row, LastRow()));
    LookAtGuards(/*of_rows=*/true, -1, found);
    for (const int r : plan_.rows) low_.Unbind(r);
    low_.Leave();
    b_.End(loop);
  }
  ValueId any = b_.Load(found, b_.Int(0));
  for (int64_t bit = 1; bit < kWarpThreads; bit *= 2) {
    const ValueId other =
        b_.Add({.code = Code::kShuffle, .dtype = DType::kF32, .src = {any}, .imm = {bit, 0, 0}});
    any = b_.Alu(Op::kMax, DType::kF32, {any, other});
  }
  const ValueId branch = b_.If(b_.Alu(Op::kCmpEq, DType::kBool, {lane_, b_.Int(0)}));
  b_.Store(guards_, b_.Divide(thread_, kWarpThreads), any);
  b_.EndIf(branch);
  b_.Barrier();
  ValueId fails = zero;
  for (int64_t warp = 0; warp < threads / kWarpThreads; ++warp)
    fails = b_.Alu(Op::kMax, DType::kF32, {fails, b_.Load(guards_, b_.Int(warp))});
  return b_.Less(zero, fails);
}

// The number of a time, of those that are run.
ValueId OnlineElements::NumberOf(ValueId step) {
  return first_ < 0 ? step : low_.Least(b_.Plus(first_, step), b_.Int(times_ - 1));
}

// Calls `body` with an element bound: of the row `half`, of eight steps `eight`, of these one of
// the thread's two. Returns what it returns.
ValueId OnlineElements::At(int64_t half, int64_t eight, int64_t element,
                           const std::function<ValueId()>& body) {
  low_.Enter();
  BindRow(half);
  for (const auto* forms : {&plan_.visible.first, &plan_.visible.last})
    for (const codegen::RowForm& form : *forms) {
      if (!whole_) break;
      low_.memo_[form.comparison] = b_.Const(DType::kBool, form.hides ? 0 : 1);
      low_.memo_scopes_.back().push_back(form.comparison);
    }
  BindStep(eight, element);
  for (const auto& [load, values] : of_steps_)
    low_.together_[load] = values[static_cast<size_t>(eight * 2 + element)];
  BindScores(half, eight, element);
  const ValueId result = body();
  low_.Unbind(plan_.range);
  for (const int r : plan_.rows) low_.Unbind(r);
  low_.Leave();
  return result;
}

void OnlineElements::BindStep(int64_t eight, int64_t element) {
  ValueId step =
      b_.Plus(b_.Plus(b_.Times(number_, tile_.steps), member_), b_.Int(eight * kChunk + element));
  inside_ = -1;
  if ((StepsEnd() || extent_ % tile_.steps != 0) && !whole_) {
    inside_ = b_.Less(step, steps_);
    step = low_.Least(step, last_step_);
  }
  low_.BindPlain(plan_.range, step);
}

void OnlineElements::LoadOfSteps() {
  RangeSet of_steps = RangeSet{1} << plan_.range;
  for (const int r : plan_.batch) of_steps |= RangeSet{1} << r;
  for (const UOp* load : kernel_.nodes) {
    const RangeSet deps = kernel_.DepsOf(load);
    if (load->op != Op::kLoad || (deps >> plan_.range & 1) == 0 || (deps & ~of_steps) != 0)
      continue;
    std::vector<ValueId>& values = of_steps_[load];
    for (int64_t eight = 0; eight < tile_.steps / kChunk; ++eight)
      for (int64_t element = 0; element < 2; ++element) {
        low_.Enter();
        BindStep(eight, element);
        values.push_back(low_.Emit(load));
        low_.Unbind(plan_.range);
        low_.Leave();
      }
  }
}

void OnlineElements::ForgetOfSteps() {
  for (const auto& [load, values] : of_steps_) low_.together_.erase(load);
  of_steps_.clear();
}

ValueId OnlineElements::RowOf(int64_t half) {
  return b_.Plus(first_row_,
                 b_.Int(half / kRowsOfFragment * kFragment + half % kRowsOfFragment * kChunk));
}
// The row's ranges, and what was carried for it. Rows beyond the last one are the last one again.
void OnlineElements::BindRow(int64_t half) {
  ValueId row = RowOf(half);
  if (plan_.row_count % tile_.rows() != 0) row = low_.Least(row, b_.Int(plan_.row_count - 1));
  low_.BindAll(plan_.rows, row);
  for (const auto& [node, values] : of_rows_) low_.together_[node] = values[half];
  for (const auto& [max, values] : subtracted_) low_.subtracted_[max] = values[half];
}

// A value that counts for the reduction only where the step exists.
ValueId OnlineElements::Within(ValueId value, Op op) {
  if (inside_ < 0) return value;
  const DType type = b_.at(value).dtype;
  return b_.Alu(Op::kWhere, type, {inside_, value, low_.Identity(op, type)});
}

// A maximum or a sum of a row.
void OnlineElements::CarryRow(const UOp* node, int64_t half) {
  const Op op = ReduceOf(node).op();
  const UnitExponential* const unit = op == Op::kMax ? UnitOf(node) : nullptr;
  ValueId total = -1;
  for (int64_t eight = 0; eight < tile_.steps / kChunk; ++eight)
    for (int64_t element = 0; element < 2; ++element)
      At(half, eight, element, [&] {
        const ValueId value =
            Within(unit != nullptr ? low_.Unscaled(*unit) : low_.Emit(node->src[0]), op);
        total = total < 0 ? value : low_.Combine(op, total, value);
        return total;
      });
  if (op == Op::kMax) return CarryMaximum(node, half, OverRow(op, total));
  const ValueId place = b_.Int(half), memory = carried_.at(node);
  ValueId before = b_.Load(memory, place);
  if (const auto max = plan_.online.max_of.find(node); max != plan_.online.max_of.end())
    before = b_.Alu(Op::kMul, DType::kF32, {before, rescale_.at(max->second)[half]});
  b_.Store(memory, place, b_.Alu(Op::kAdd, DType::kF32, {before, total}));
}

// Over the four threads that have elements of the row.
ValueId OnlineElements::OverRow(Op op, ValueId value) {
  for (const int64_t bit : {1, 2}) {
    const ValueId other = b_.Add({.code = Code::kShuffle,
                                  .dtype = b_.at(value).dtype,
                                  .src = {value},
                                  .imm = {bit, 0, 0}});
    value = b_.Alu(op, b_.at(value).dtype, {value, other});
  }
  return value;
}

// exp(x - m) where x is the maximum before rescales what was summed so far. While the maximum is
// -inf, 0 stands for it.
void OnlineElements::CarryMaximum(const UOp* max, int64_t half, ValueId of_steps) {
  const ValueId place = b_.Int(half), memory = carried_.at(max);
  const ValueId before = b_.Load(memory, place);
  const ValueId now = b_.Alu(Op::kMax, DType::kF32, {before, of_steps});
  b_.Store(memory, place, now);
  const UnitExponential* const unit = UnitOf(max);
  if (unit == nullptr) return;
  const ValueId none = b_.Const(DType::kF32, -std::numeric_limits<double>::infinity());
  const ValueId hidden = b_.Alu(Op::kCmpEq, DType::kBool, {now, none});
  const auto of_half = [&](auto& all, ValueId value) {
    all[max].resize(static_cast<size_t>(halves_));
    all[max][static_cast<size_t>(half)] = value;
  };
  const ValueId subtracted =
      b_.Alu(Op::kWhere, DType::kF32, {hidden, b_.Const(DType::kF32, 0), now});
  of_half(subtracted_, subtracted);
  of_half(of_rows_, WithFactor(max, subtracted));
  low_.subtracted_[max] = subtracted;
  of_half(rescale_, low_.ByUnit(*unit, before));
}

// The values as MMA's a has them, of each fragment of rows and of steps; rounded together.
std::vector<ValueId> OnlineElements::ValuesOf(const UOp* value) {
  std::vector<ValueId> fragments;
  if (plan_.dtype == DType::kF32) {
    for (int64_t f = 0; f < tile_.fragments; ++f)
      for (int64_t eight = 0; eight < tile_.steps / kChunk; ++eight) {
        Instruction all{.code = Code::kLanes, .dtype = DType::kF32, .lanes = 4};
        for (int64_t lane = 0; lane < 4; ++lane)
          all.src.push_back(At(f * kRowsOfFragment + lane % 2, eight, lane / 2,
                               [&] { return Within(low_.Emit(value), Op::kAdd); }));
        fragments.push_back(b_.Add(std::move(all)));
      }
    return fragments;
  }
  const bool rounded = value->op == Op::kCast && value->src[0]->dtype == DType::kF32;
  const UOp* const before = rounded ? value->src[0] : value;
  for (int64_t f = 0; f < tile_.fragments; ++f)
    for (int64_t term = 0; term < tile_.steps / kFragment; ++term) {
      Instruction all{.code = Code::kLanes, .dtype = before->dtype, .lanes = 8};
      for (int64_t lane = 0; lane < 8; ++lane)
        all.src.push_back(At(f * kRowsOfFragment + lane / 2 % 2, term * 2 + lane / 4, lane % 2,
                             [&] { return Within(low_.Emit(before), Op::kAdd); }));
      fragments.push_back(b_.Cast(b_.Add(std::move(all)), plan_.dtype));
    }
  return fragments;
}

// Elements of a product's sums: of 16 rows by 8 columns four of each thread.
int64_t OnlineElements::ColumnsOf(const OnlineProduct& product) const {
  return OnlinePadded(plan_.matrices[product.matrix].width) / kChunk / tile_.parts;
}
int64_t OnlineElements::PlaceOf(const OnlineProduct& product, int64_t fragment,
                                int64_t column) const {
  return (fragment * ColumnsOf(product) + column) * 4;
}

void OnlineElements::OpenCarried() {
  for (const auto& phase : plan_.online.phases)
    for (const size_t g : phase)
      for (const UOp* node : kernel_.groups[g].nodes) {
        const OnlineProduct* const product = plan_.ProductOf(node);
        const int64_t elements =
            product == nullptr ? halves_ : PlaceOf(*product, tile_.fragments, 0);
        const ValueId memory = b_.Alloc(Space::kPrivate, DType::kF32, elements);
        const ValueId identity = low_.Identity(ReduceOf(node).op(), DType::kF32);
        for (int64_t i = 0; i < elements; ++i) b_.Store(memory, b_.Int(i), identity);
        carried_[node] = memory;
      }
}

// Results of rows. Where a maximum is -inf, its sums are what exp(-inf - -inf) makes them; but of
// no steps at all they are 0.
void OnlineElements::RowsEnd(size_t pass) {
  for (const size_t g : plan_.online.phases[pass])
    for (const UOp* node : kernel_.groups[g].nodes) {
      if (plan_.ProductOf(node) != nullptr) continue;
      std::vector<ValueId> values;
      for (int64_t half = 0; half < halves_; ++half) {
        ValueId value = b_.Load(carried_.at(node), b_.Int(half));
        if (ReduceOf(node).op() == Op::kAdd) value = OverRow(Op::kAdd, value);
        if (UnitOf(node) != nullptr) {
          subtracted_[node].resize(static_cast<size_t>(halves_));
          subtracted_[node][static_cast<size_t>(half)] = value;
          value = WithFactor(node, value);
        }
        values.push_back(OrNan(node, half, value));
      }
      of_rows_[node] = std::move(values);
    }
}
ValueId OnlineElements::OrNan(const UOp* sum, int64_t half, ValueId value) {
  const auto max = plan_.online.max_of.find(sum);
  if (max == plan_.online.max_of.end()) return value;
  const ValueId none = b_.Const(DType::kF32, -std::numeric_limits<double>::infinity());
  const ValueId greatest = b_.Load(carried_.at(max->second), b_.Int(half));
  ValueId hidden = b_.Alu(Op::kCmpEq, DType::kBool, {greatest, none});
  if (StepsMayBeNone()) hidden = low_.And(hidden, b_.Less(b_.Int(0), steps_));
  return b_.Alu(Op::kWhere, DType::kF32,
                {hidden, b_.Const(DType::kF32, std::numeric_limits<double>::quiet_NaN()), value});
}

void OnlineElements::Finish(size_t pass) {
  RowsEnd(pass);
  Stores(pass);
  if (pass + 1 == plan_.passes.size() && row_sums_.any()) StoreRowSums();
}

void OnlineElements::Stores(size_t pass) {
  std::vector<const UOp*> of_rows, of_columns;
  RangeSet of_column = 0;
  for (const int r : plan_.columns) of_column |= RangeSet{1} << r;
  for (const UOp* store : kernel_.stores)
    if (plan_.PassOf(store) == pass && !SumsPoints(store))
      ((kernel_.DepsOf(store) & of_column) == 0 ? of_rows : of_columns).push_back(store);
  if (of_rows.empty() && of_columns.empty()) return;
  for (int64_t half = 0; half < halves_; ++half) {
    low_.Enter();
    const ValueId branch = plan_.row_count % tile_.rows() == 0
                               ? ValueId{-1}
                               : b_.If(b_.Less(RowOf(half), b_.Int(plan_.row_count)));
    low_.BindAll(plan_.rows, RowOf(half));
    for (const auto& [node, values] : of_rows_) low_.together_[node] = values[half];
    const int64_t columns = OnlinePadded(plan_.column_count) / tile_.parts;
    for (int64_t column = 0; column < columns && !of_columns.empty(); column += kChunk)
      StoreColumns(of_columns, half, column);
    if (!of_rows.empty()) StoreRow(of_rows);
    for (const int r : plan_.rows) low_.Unbind(r);
    if (branch >= 0) b_.EndIf(branch);
    low_.Leave();
  }
}

// By the first of the four threads that have the row, in the first part.
void OnlineElements::StoreRow(const std::vector<const UOp*>& stores) {
  low_.Enter();
  const ValueId branch =
      b_.If(b_.Alu(Op::kCmpEq, DType::kBool, {b_.Plus(member_, part_), b_.Int(0)}));
  for (const int r : plan_.columns) low_.BindPlain(r, b_.Int(0));
  low_.Store(stores);
  for (const int r : plan_.columns) low_.Unbind(r);
  b_.EndIf(branch);
  low_.Leave();
}

// Two columns of the eight: as lanes of one store where the first is even in the innermost range.
void OnlineElements::StoreColumns(const std::vector<const UOp*>& stores, int64_t half,
                                  int64_t column) {
  const int64_t count = plan_.column_count;
  const ValueId first =
      b_.Plus(b_.Plus(member_, b_.Times(part_, count / tile_.parts)), b_.Int(column));
  const int inner = plan_.columns.back();
  const int64_t extent = kernel_.ranges[inner].extent;
  if (extent % 2 != 0) {
    for (int64_t lane = 0; lane < 2; ++lane) {
      const ValueId at = b_.Plus(first, b_.Int(lane));
      InColumn(at, 1, [&] { StoreAt(stores, half, column, b_.Int(lane)); });
    }
    return;
  }
  InColumn(first, 2, [&] {
    const ValueId in_range = low_.value_[inner];
    // Always true. It tells the proof of range what parity does.
    const ValueId branch = count == extent
                               ? ValueId{-1}
                               : b_.If(b_.Less(b_.Plus(in_range, b_.Int(1)), b_.Int(extent)));
    const ValueId lane = b_.Loop(2, How::kVector, 2);
    low_.Enter();
    low_.BindPlain(inner, b_.Plus(in_range, lane));
    StoreAt(stores, half, column, lane);
    low_.Leave();
    b_.End(lane);
    if (branch >= 0) b_.EndIf(branch);
  });
}

// Calls `body` where the column and `lanes` - 1 more exist, with the first one bound.
void OnlineElements::InColumn(ValueId column, int64_t lanes, const std::function<void()>& body) {
  low_.Enter();
  const int64_t count = plan_.column_count;
  const ValueId branch = count % kFragment == 0
                             ? ValueId{-1}
                             : b_.If(b_.Less(b_.Plus(column, b_.Int(lanes - 1)), b_.Int(count)));
  low_.BindAll(plan_.columns, column);
  body();
  for (const int r : plan_.columns) low_.Unbind(r);
  if (branch >= 0) b_.EndIf(branch);
  low_.Leave();
}

void OnlineElements::StoreAt(const std::vector<const UOp*>& stores, int64_t half,
                             int64_t column, ValueId lane) {
  BindSums(half, column, lane);
  low_.Store(stores);
}

void OnlineElements::BindSums(int64_t half, int64_t column, ValueId lane) {
  for (const OnlineProduct& product : plan_.products) {
    const int64_t place =
        PlaceOf(product, half / kRowsOfFragment, column / kChunk) + half % kRowsOfFragment * 2;
    const ValueId sum = b_.Load(carried_.at(product.sum), b_.Plus(b_.Int(place), lane));
    low_.together_[product.sum] = OrNan(product.sum, half, sum);
  }
}

// Of rows and columns that do not exist those of the last ones stand for them, and count for
// nothing. All threads of a warp take part.
void OnlineElements::StoreRowSums() {
  const int64_t count = plan_.column_count, columns = OnlinePadded(count) / tile_.parts;
  const ValueId first = b_.Plus(member_, b_.Times(part_, count / tile_.parts));
  for (int64_t fragment = 0; fragment < tile_.fragments; ++fragment)
    for (int64_t column = 0; column < columns; column += kChunk) {
      row_sums_.Clear();
      for (int64_t row = 0; row < kRowsOfFragment; ++row) {
        const int64_t half = fragment * kRowsOfFragment + row;
        low_.Enter();
        BindRow(half);
        const ValueId exists = plan_.row_count % tile_.rows() == 0
                                   ? ValueId{-1}
                                   : b_.Less(RowOf(half), b_.Int(plan_.row_count));
        for (int64_t lane = 0; lane < 2; ++lane) {
          low_.Enter();
          ValueId at = b_.Plus(first, b_.Int(column + lane)), inside = exists;
          if (count % kFragment != 0) {
            inside = low_.And(inside, b_.Less(at, b_.Int(count)));
            at = low_.Least(at, b_.Int(count - 1));
          }
          low_.BindAll(plan_.columns, at);
          BindSums(half, column, b_.Int(lane));
          row_sums_.Keep(row, b_.Int(lane), inside);
          for (const int r : plan_.columns) low_.Unbind(r);
          low_.Leave();
        }
        for (const int r : plan_.rows) low_.Unbind(r);
        low_.Leave();
      }
      const ValueId first_of_warp =
          b_.Plus(b_.Plus(origin_, b_.Times(warp_, kFragment * tile_.fragments)),
                  b_.Int(fragment * kFragment));
      row_sums_.Store(thread_, first_of_warp, b_.Plus(first, b_.Int(column)));
    }
}

}  // namespace outboard::program
