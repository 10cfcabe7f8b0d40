#include "compiler/program/online/online_elements.h"

#include <algorithm>
#include <limits>
#include <numbers>

#include "compiler/divide_up.h"

namespace outboard::program {

OnlineElements::OnlineElements(const OnlinePlan& plan)
    : point_(plan.kernel),
      b_(point_.builder()),
      ranges_(point_.ranges()),
      kernel_(plan.kernel),
      plan_(plan),
      tile_(plan.tile),
      extent_(plan.kernel.ranges[plan.range].extent),
      iterations_(DivideUp(extent_, tile_.steps)),
      halves_(tile_.fragments * kRowsOfFragment),
      row_sums_(point_, {plan.rows, plan.row_count}, {plan.columns, plan.column_count},
                tile_.rows(), kFragment) {
  point_.MarkDivided(kernel_.OutputSet());
  units_ = UnitExponentialsOf(kernel_, plan.range);
  if (plan_.dtype != DType::kF32) {
    const auto loaded = LoadedExponentialsOf(kernel_, plan.range);
    units_.insert(loaded.begin(), loaded.end());
    point_.SetByInverse(LoadedQuotientsOf(kernel_, plan.range, loaded));
  }
  for (const auto& entry : units_) {
    const UnitExponential& unit = entry.second;
    point_.Provide(entry.first, [this, &unit] { return ByUnit(unit, Unscaled(unit)); });
  }
}

const UnitExponential* OnlineElements::UnitOf(const UOp* max) const {
  const auto exponential = plan_.online.exponential_of.find(max);
  if (exponential == plan_.online.exponential_of.end()) return nullptr;
  return &units_.at(exponential->second);
}

ValueId OnlineElements::WithFactor(const UOp* max, ValueId carried) {
  const UnitExponential* const unit = UnitOf(max);
  if (unit == nullptr || unit->factor == 1) return carried;
  return b_.Alu(Op::kMul, DType::kF32, {carried, b_.Const(DType::kF32, unit->factor)});
}

ValueId OnlineElements::Unscaled(const UnitExponential& unit) {
  ValueId y = point_.Emit(unit.value);
  const ValueId none = point_.Identity(Op::kMax, DType::kF32);
  for (size_t i = unit.hidden.size(); i-- > 0;) {
    const auto& [condition, hides] = unit.hidden[i];
    const ValueId hidden = point_.Emit(condition);
    y = hides ? b_.Alu(Op::kWhere, DType::kF32, {hidden, none, y})
              : b_.Alu(Op::kWhere, DType::kF32, {hidden, y, none});
  }
  return y;
}

ValueId OnlineElements::ByUnit(const UnitExponential& unit, ValueId y) {
  const ValueId minus =
      b_.Alu(Op::kNeg, DType::kF32,
             {unit.loaded ? point_.Emit(unit.max) : subtracted_here_.at(unit.max)});
  Instruction subtract{
      .code = Code::kAlu, .op = Op::kAdd, .dtype = DType::kF32, .src = {y, minus}};
  double scale = unit.factor * std::numbers::log2e;
  if (unit.loaded) {
    scale = std::numbers::log2e;
    if (unit.factor != 1) {
      subtract.src[0] =
          b_.Alu(Op::kMul, DType::kF32, {y, b_.Const(DType::kF32, unit.factor)});
      subtract.imm[0] = static_cast<int64_t>(Precision::kWithProduct);
    }
  }
  const ValueId distance = b_.Add(std::move(subtract));
  const ValueId factor = b_.Const(DType::kF32, static_cast<float>(scale));
  return b_.Add({.code = Code::kAlu,
                 .op = Op::kExp2,
                 .dtype = DType::kF32,
                 .src = {b_.Alu(Op::kMul, DType::kF32, {distance, factor})},
                 .imm = {static_cast<int64_t>(Precision::kByUnit), 0, 0}});
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
  ranges_.OpenAll(plan_.batch, batch_);
  const ValueId all = point_.AndBelowEnds(
      point_.ReachesBelowEnds(plan_.rows, origin_, tile_.rows()), plan_.batch);
  return all < 0 ? -1 : b_.If(all);
}

// Calls `body` with an element open: of the row `half`, of eight steps `eight`, of these one of
// the thread's two. Returns what it returns.
ValueId OnlineElements::At(int64_t half, int64_t eight, int64_t element,
                           const std::function<ValueId()>& body) {
  point_.OpenScope();
  BindRow(half);
  for (const auto* forms : {&plan_.visible.first, &plan_.visible.last})
    for (const codegen::RowForm& form : *forms) {
      if (!whole_) break;
      point_.Know(form.comparison, b_.Const(DType::kBool, form.hides ? 0 : 1));
    }
  BindStep(eight, element);
  for (const auto& [load, values] : of_steps_)
    point_.Provide(load, values[static_cast<size_t>(eight * 2 + element)]);
  BindScores(half, eight, element);
  const ValueId result = body();
  ranges_.Close(plan_.range);
  ranges_.CloseAll(plan_.rows);
  point_.CloseScope();
  return result;
}

void OnlineElements::BindStep(int64_t eight, int64_t element) {
  ValueId step =
      b_.Plus(b_.Plus(b_.Times(number_, tile_.steps), member_), b_.Int(eight * kChunk + element));
  inside_ = -1;
  if ((StepsEnd() || extent_ % tile_.steps != 0) && !whole_) {
    inside_ = b_.Less(step, steps_);
    step = b_.Min(step, last_step_);
  }
  ranges_.Open(plan_.range, step);
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
        point_.OpenScope();
        BindStep(eight, element);
        values.push_back(point_.Emit(load));
        ranges_.Close(plan_.range);
        point_.CloseScope();
      }
  }
}

void OnlineElements::ForgetOfSteps() {
  for (const auto& [load, values] : of_steps_) point_.Withdraw(load);
  of_steps_.clear();
}

ValueId OnlineElements::RowOf(int64_t half) {
  return b_.Plus(first_row_,
                 b_.Int(half / kRowsOfFragment * kFragment + half % kRowsOfFragment * kChunk));
}
// The row's ranges, and what was carried for it. Rows beyond the last one are the last one again.
void OnlineElements::BindRow(int64_t half) {
  ValueId row = RowOf(half);
  if (plan_.row_count % tile_.rows() != 0) row = b_.Min(row, b_.Int(plan_.row_count - 1));
  ranges_.OpenAll(plan_.rows, row);
  for (const auto& [node, values] : of_rows_) point_.Provide(node, values[half]);
  for (const auto& [max, values] : subtracted_) subtracted_here_[max] = values[half];
}

// A value that counts for the reduction only where the step exists.
ValueId OnlineElements::Within(ValueId value, Op op) {
  if (inside_ < 0) return value;
  const DType type = b_.at(value).dtype;
  return b_.Alu(Op::kWhere, type, {inside_, value, point_.Identity(op, type)});
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
            Within(unit != nullptr ? Unscaled(*unit) : point_.Emit(node->src[0]), op);
        total = total < 0 ? value : point_.Combine(op, total, value);
        return total;
      });
  if (op == Op::kMax) return CarryMaximum(node, half, OverThreads(op, total, kThreadsOfRow));
  const ValueId place = b_.Int(half), memory = carried_.at(node);
  ValueId before = b_.Load(memory, place);
  if (const auto max = plan_.online.max_of.find(node); max != plan_.online.max_of.end())
    before = b_.Alu(Op::kMul, DType::kF32, {before, rescale_.at(max->second)[half]});
  b_.Store(memory, place, b_.Alu(Op::kAdd, DType::kF32, {before, total}));
}

ValueId OnlineElements::OverThreads(Op op, ValueId value, int64_t threads) {
  for (int64_t bit = 1; bit < threads; bit *= 2) {
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
  subtracted_here_[max] = subtracted;
  of_half(rescale_, ByUnit(*unit, before));
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
                               [&] { return Within(point_.Emit(value), Op::kAdd); }));
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
                             [&] { return Within(point_.Emit(before), Op::kAdd); }));
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
        const ValueId identity = point_.Identity(ReduceOf(node).op(), DType::kF32);
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
        if (ReduceOf(node).op() == Op::kAdd) value = OverThreads(Op::kAdd, value, kThreadsOfRow);
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
  if (StepsMayBeNone()) hidden = b_.And(hidden, b_.Less(b_.Int(0), steps_));
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
    point_.OpenScope();
    const ValueId branch = plan_.row_count % tile_.rows() == 0
                               ? ValueId{-1}
                               : b_.If(b_.Less(RowOf(half), b_.Int(plan_.row_count)));
    ranges_.OpenAll(plan_.rows, RowOf(half));
    for (const auto& [node, values] : of_rows_) point_.Provide(node, values[half]);
    const int64_t columns = OnlinePadded(plan_.column_count) / tile_.parts;
    for (int64_t column = 0; column < columns && !of_columns.empty(); column += kChunk)
      StoreColumns(of_columns, half, column);
    if (!of_rows.empty()) StoreRow(of_rows);
    ranges_.CloseAll(plan_.rows);
    if (branch >= 0) b_.EndIf(branch);
    point_.CloseScope();
  }
}

// By the first of the four threads that have the row, in the first part.
void OnlineElements::StoreRow(const std::vector<const UOp*>& stores) {
  point_.OpenScope();
  const ValueId branch =
      b_.If(b_.Alu(Op::kCmpEq, DType::kBool, {b_.Plus(member_, part_), b_.Int(0)}));
  for (const int r : plan_.columns) ranges_.Open(r, b_.Int(0));
  point_.Store(stores);
  ranges_.CloseAll(plan_.columns);
  b_.EndIf(branch);
  point_.CloseScope();
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
    const ValueId in_range = ranges_[inner].value;
    // Always true. It tells the proof of range what parity does.
    const ValueId branch = count == extent
                               ? ValueId{-1}
                               : b_.If(b_.Less(b_.Plus(in_range, b_.Int(1)), b_.Int(extent)));
    const ValueId lane = b_.Loop(2, How::kVector, 2);
    point_.OpenScope();
    ranges_.Open(inner, b_.Plus(in_range, lane));
    StoreAt(stores, half, column, lane);
    point_.CloseScope();
    b_.End(lane);
    if (branch >= 0) b_.EndIf(branch);
  });
}

// Calls `body` where the column and `lanes` - 1 more exist, with the first one open.
void OnlineElements::InColumn(ValueId column, int64_t lanes, const std::function<void()>& body) {
  point_.OpenScope();
  const int64_t count = plan_.column_count;
  const ValueId branch = count % kFragment == 0
                             ? ValueId{-1}
                             : b_.If(b_.Less(b_.Plus(column, b_.Int(lanes - 1)), b_.Int(count)));
  ranges_.OpenAll(plan_.columns, column);
  body();
  ranges_.CloseAll(plan_.columns);
  if (branch >= 0) b_.EndIf(branch);
  point_.CloseScope();
}

void OnlineElements::StoreAt(const std::vector<const UOp*>& stores, int64_t half,
                             int64_t column, ValueId lane) {
  BindSums(half, column, lane);
  point_.Store(stores);
}

void OnlineElements::BindSums(int64_t half, int64_t column, ValueId lane) {
  for (const OnlineProduct& product : plan_.products) {
    const int64_t place =
        PlaceOf(product, half / kRowsOfFragment, column / kChunk) + half % kRowsOfFragment * 2;
    const ValueId sum = b_.Load(carried_.at(product.sum), b_.Plus(b_.Int(place), lane));
    point_.Provide(product.sum, OrNan(product.sum, half, sum));
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
        point_.OpenScope();
        BindRow(half);
        const ValueId exists = plan_.row_count % tile_.rows() == 0
                                   ? ValueId{-1}
                                   : b_.Less(RowOf(half), b_.Int(plan_.row_count));
        for (int64_t lane = 0; lane < 2; ++lane) {
          point_.OpenScope();
          ValueId at = b_.Plus(first, b_.Int(column + lane)), inside = exists;
          if (count % kFragment != 0) {
            inside = b_.And(inside, b_.Less(at, b_.Int(count)));
            at = b_.Min(at, b_.Int(count - 1));
          }
          ranges_.OpenAll(plan_.columns, at);
          BindSums(half, column, b_.Int(lane));
          row_sums_.Keep(row, b_.Int(lane), inside);
          ranges_.CloseAll(plan_.columns);
          point_.CloseScope();
        }
        ranges_.CloseAll(plan_.rows);
        point_.CloseScope();
      }
      const ValueId first_of_warp =
          b_.Plus(b_.Plus(origin_, b_.Times(warp_, kFragment * tile_.fragments)),
                  b_.Int(fragment * kFragment));
      row_sums_.Store(thread_, first_of_warp, b_.Plus(first, b_.Int(column)));
    }
}

}  // namespace outboard::program
