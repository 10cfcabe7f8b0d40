// Reductions that share one loop, on blocks of threads with matrix units
// (compiler/program/online/plan.h):
//
//   copies of the rows' matrices and of the first steps' ones       COMMIT
//   for each time:
//     WAIT, BARRIER                          what is multiplied now is there for every warp
//     copies for the next time; COMMIT       into the stage that was used before
//     LDMATRIX, MMA                          scores, in registers
//     maxima: of a thread's values, then SHUFFLE; sums so far are rescaled where they grew
//     sums of a thread's values; LDMATRIX, MMA: products of values, which are in registers as the
//     scores were
//   SHUFFLE of sums, stores
//
// A thread has the elements of a score that MmaElement gives it: of two rows for each fragment, and
// of every eight steps two. They are also those that the first operand of the next product wants.
#include <algorithm>
#include <limits>

#include "base/check.h"
#include "compiler/program/lower/lowering.h"
#include "compiler/program/lower/online_matrices.h"
#include "compiler/program/online/plan.h"

namespace outboard::program {

namespace {

constexpr int64_t kFragment = 16, kChunk = 8, kRowsOfFragment = 2;

int64_t TimesOf(int64_t count, int64_t size) { return (count + size - 1) / size; }

}  // namespace

class OnlineMmaLowering {
 public:
  explicit OnlineMmaLowering(const OnlineMmaPlan& plan)
      : low_(plan.kernel, nullptr),
        b_(low_.b_),
        kernel_(plan.kernel),
        plan_(plan),
        tile_(plan.tile),
        matrices_(low_, plan),
        extent_(plan.kernel.ranges[plan.range].extent),
        times_(TimesOf(extent_, tile_.steps)),
        halves_(tile_.fragments * kRowsOfFragment) {
    low_.mapped_ = kernel_.OutputSet();
  }

  Program Run() {
    matrices_.Open();
    if (!plan_.visible.guards.empty()) guards_ = b_.Alloc(Space::kShared, DType::kF32, tile_.warps);
    Place();
    low_.Enter();
    low_.BindAll(plan_.batch, batch_);
    OpenWindow();
    OpenCarried();
    for (size_t m = 0; m < plan_.matrices.size(); ++m)
      if (plan_.matrices[m].of_rows) matrices_.Fetch(m, -1, b_.Int(0));
    for (size_t phase = 0; phase < plan_.online.phases.size(); ++phase) {
      Pass(phase);
      Finish(phase);
    }
    Stores();
    low_.Leave();
    return b_.Take(static_cast<int>(kernel_.slot_elements.size()));
  }

 private:
  // ---- where things are

  void Place() {
    const int64_t tiles = TimesOf(plan_.row_count, tile_.rows()), blocks = plan_.batches * tiles;
    const ValueId block = blocks > 1 ? b_.Special(Grid::kBlock, blocks) : b_.Int(0);
    const ValueId thread = b_.Special(Grid::kThread, tile_.threads());
    thread_ = thread;
    batch_ = b_.Divide(block, tiles);
    ValueId tile = b_.Modulo(block, tiles);
    // Rows that see the most steps come first, so that the last blocks to run are short.
    if (!plan_.visible.last.empty()) tile = b_.Plus(b_.Int(tiles - 1), b_.Times(tile, -1));
    origin_ = b_.Times(tile, tile_.rows());
    warp_ = b_.Divide(thread, kWarpThreads);
    lane_ = b_.Modulo(thread, kWarpThreads);
    matrices_.Place(thread, lane_, origin_);
    first_row_ = b_.Plus(b_.Plus(origin_, b_.Times(warp_, kFragment * tile_.fragments)),
                         b_.Divide(lane_, 4));
    member_ = b_.Times(b_.Modulo(lane_, 4), 2);
  }

  // Which times are run: for all rows of the tile, from the first visible step to the last one.
  void OpenWindow() {
    const codegen::VisibleSteps& visible = plan_.visible;
    count_ = b_.Int(times_);
    if (visible.range < 0) return;
    const auto extreme = [&](const codegen::RowForm& form, bool greatest) {
      ValueId sum = b_.Int(form.constant);
      for (const auto& [range, coefficient] : form.terms) {
        ValueId value = low_.value_[range];
        if (range == plan_.rows.back()) {
          const ValueId last =
              low_.Least(b_.Plus(origin_, b_.Int(tile_.rows() - 1)), b_.Int(plan_.row_count - 1));
          value = (coefficient > 0) == greatest ? last : origin_;
        }
        sum = b_.Plus(sum, b_.Times(value, coefficient));
      }
      return sum;
    };
    ValueId first = b_.Int(0), last = b_.Int(extent_ - 1);
    for (const codegen::RowForm& form : visible.first)
      first = low_.Greatest(first, extreme(form, false));
    for (const codegen::RowForm& form : visible.last) last = low_.Least(last, extreme(form, true));
    if (!visible.first.empty()) {
      first = low_.Least(first, b_.Int(extent_ - 1));
      first_ = b_.Divide(first, tile_.steps);
    }
    last = low_.Greatest(last, first);  // at least one
    const ValueId end = b_.Plus(b_.Divide(last, tile_.steps), b_.Int(1));
    count_ = first_ < 0 ? end : b_.Plus(end, low_.Negated(first_));
    windowed_ = true;
    if (visible.guards.empty()) return;
    const ValueId fail = GuardsFail(first_ < 0 ? b_.Int(0) : first_, end);
    if (first_ >= 0) first_ = b_.Alu(Op::kWhere, DType::kI64, {fail, b_.Int(0), first_});
    count_ = b_.Alu(Op::kWhere, DType::kI64, {fail, b_.Int(times_), count_});
  }

  // Whether a guard is not 0 in a step before the time `first` or from the time `end` on. Threads
  // look at different steps, and tell each other.
  ValueId GuardsFail(ValueId first, ValueId end) {
    const int64_t threads = tile_.threads();
    const ValueId one = b_.Const(DType::kF32, 1), zero = b_.Const(DType::kF32, 0);
    const ValueId found = b_.Alloc(Space::kPrivate, DType::kF32, 1);
    b_.Store(found, b_.Int(0), zero);
    const ValueId loop = b_.Loop(TimesOf(extent_, threads));
    low_.Enter();
    const ValueId step = low_.Least(b_.Plus(b_.Times(loop, threads), thread_), b_.Int(extent_ - 1));
    low_.BindPlain(plan_.range, step);
    const ValueId time = b_.Divide(step, tile_.steps);
    const ValueId hidden = b_.Alu(Op::kOr, DType::kBool,
                                  {b_.Less(time, first), b_.Less(b_.Plus(end, b_.Int(-1)), time)});
    for (const UOp* guard : plan_.visible.guards) {
      const ValueId other =
          b_.Alu(Op::kCmpNe, DType::kBool, {low_.Emit(guard), b_.Const(guard->dtype, 0)});
      b_.Store(found, b_.Int(0),
               b_.Alu(Op::kWhere, DType::kF32,
                      {low_.And(hidden, other), one, b_.Load(found, b_.Int(0))}));
    }
    low_.Unbind(plan_.range);
    low_.Leave();
    b_.End(loop);
    ValueId any = b_.Load(found, b_.Int(0));
    for (int64_t bit = 1; bit < kWarpThreads; bit *= 2) {
      const ValueId other =
          b_.Add({.code = Code::kShuffle, .dtype = DType::kF32, .src = {any}, .imm = {bit, 0, 0}});
      any = b_.Alu(Op::kMax, DType::kF32, {any, other});
    }
    const ValueId branch = b_.If(b_.Alu(Op::kCmpEq, DType::kBool, {lane_, b_.Int(0)}));
    b_.Store(guards_, warp_, any);
    b_.EndIf(branch);
    b_.Barrier();
    ValueId fails = zero;
    for (int64_t warp = 0; warp < tile_.warps; ++warp)
      fails = b_.Alu(Op::kMax, DType::kF32, {fails, b_.Load(guards_, b_.Int(warp))});
    return b_.Less(zero, fails);
  }

  // The number of a time, of those that are run.
  ValueId NumberOf(ValueId step) {
    return first_ < 0 ? step : low_.Least(b_.Plus(first_, step), b_.Int(times_ - 1));
  }

  void FetchTime(const std::vector<size_t>& matrices, ValueId step, ValueId stage) {
    for (const size_t m : matrices) matrices_.Fetch(m, NumberOf(step), stage);
    b_.Add({.code = Code::kCommit});
  }

  ValueId Multiply(ValueId a, ValueId b, int64_t half, ValueId c) {
    return b_.Add({.code = Code::kMma,
                   .dtype = DType::kF32,
                   .lanes = 4,
                   .src = {a, b, c},
                   .imm = {half, 0, 0}});
  }

  // ---- a pass over the steps

  void Pass(size_t phase) {
    const std::vector<size_t>& groups = plan_.online.phases[phase];
    const std::vector<size_t>&scores = plan_.passes[phase].scores,
          &matrices = plan_.passes[phase].matrices;
    if (phase > 0) b_.Barrier();  // the stages are still being read
    FetchTime(matrices, b_.Int(0), b_.Int(0));
    const ValueId step = b_.Loop(times_, How::kPlain, 1, windowed_ ? count_ : ValueId{-1});
    low_.Enter();
    b_.Add({.code = Code::kWait, .imm = {0, 0, 0}});
    b_.Barrier();
    const ValueId next = b_.Plus(step, b_.Int(1));
    const auto fetch_next = [&] {
      const ValueId more = b_.If(b_.Less(next, count_));
      low_.Enter();
      for (const size_t m : matrices)
        matrices_.Fetch(m, NumberOf(next), b_.Modulo(next, tile_.stages));
      low_.Leave();
      b_.EndIf(more);
      b_.Add({.code = Code::kCommit});
    };
    if (tile_.stages > 1) fetch_next();
    Time(groups, scores, NumberOf(step), b_.Modulo(step, tile_.stages));
    if (tile_.stages == 1) {
      b_.Barrier();
      fetch_next();
    }
    low_.Leave();
    b_.End(step);
  }

  void Time(const std::vector<size_t>& groups, const std::vector<size_t>& scores, ValueId number,
            ValueId stage) {
    number_ = number;
    for (const size_t s : scores) MakeScores(s, stage);
    for (const size_t g : groups)
      for (const UOp* node : kernel_.groups[g].nodes) {
        if (const OnlineProduct* const product = plan_.ProductOf(node)) {
          CarryProduct(*product, stage);
        } else {
          for (int64_t half = 0; half < halves_; ++half) CarryRow(node, half);
        }
      }
  }

  void MakeScores(size_t index, ValueId stage) {
    const OnlineScore& score = plan_.scores[index];
    const OnlineMatrix &rows = plan_.matrices[score.rows], &steps = plan_.matrices[score.steps];
    const int64_t columns = tile_.steps / kChunk;
    const ValueId zero = b_.Splat(b_.Const(DType::kF32, 0), 4);
    std::vector<ValueId>& sums = scores_[score.sum];
    sums.assign(tile_.fragments * columns, zero);
    for (int64_t term = 0; term < OnlinePadded(rows.width) / kFragment; ++term) {
      const ValueId term_chunk = b_.Int(term * 2);
      std::vector<ValueId> a;
      for (int64_t f = 0; f < tile_.fragments; ++f) {
        const ValueId own = b_.Plus(b_.Times(warp_, 2 * tile_.fragments), b_.Int(f * 2));
        a.push_back(matrices_.Fragment(score.rows, b_.Int(0), own, term_chunk, true, !rows.across));
      }
      for (int64_t j = 0; j < columns; j += 2) {
        const ValueId b =
            matrices_.Fragment(score.steps, stage, b_.Int(j), term_chunk, false, !steps.across);
        for (int64_t f = 0; f < tile_.fragments; ++f)
          for (int64_t half = 0; half < 2; ++half) {
            ValueId& sum = sums[f * columns + j + half];
            sum = Multiply(a[f], b, half, sum);
          }
      }
    }
  }

  // Calls `body` with an element bound: of the row `half`, of eight steps `eight`, of these one of
  // the thread's two. Returns what it returns.
  template <typename Body>
  ValueId At(int64_t half, int64_t eight, int64_t element, const Body& body) {
    low_.Enter();
    BindRow(half);
    ValueId step =
        b_.Plus(b_.Plus(b_.Times(number_, tile_.steps), member_), b_.Int(eight * kChunk + element));
    inside_ = -1;
    if (extent_ % tile_.steps != 0) {
      inside_ = b_.Less(step, b_.Int(extent_));
      step = low_.Least(step, b_.Int(extent_ - 1));
    }
    low_.BindPlain(plan_.range, step);
    for (const auto& [sum, values] : scores_) {
      const ValueId value = values[half / kRowsOfFragment * (tile_.steps / kChunk) + eight];
      low_.together_[sum] = b_.Add({.code = Code::kLane,
                                    .dtype = DType::kF32,
                                    .src = {value},
                                    .imm = {half % kRowsOfFragment * 2 + element, 0, 0}});
    }
    const ValueId result = body();
    low_.Unbind(plan_.range);
    for (const int r : plan_.rows) low_.Unbind(r);
    low_.Leave();
    return result;
  }

  ValueId RowOf(int64_t half) {
    return b_.Plus(first_row_,
                   b_.Int(half / kRowsOfFragment * kFragment + half % kRowsOfFragment * kChunk));
  }
  // The row's ranges, and what was carried for it. Rows beyond the last one are the last one again.
  void BindRow(int64_t half) {
    ValueId row = RowOf(half);
    if (plan_.row_count % tile_.rows() != 0) row = low_.Least(row, b_.Int(plan_.row_count - 1));
    low_.BindAll(plan_.rows, row);
    for (const auto& [node, values] : of_rows_) low_.together_[node] = values[half];
  }

  // A value that counts for the reduction only where the step exists.
  ValueId Within(ValueId value, Op op) {
    if (inside_ < 0) return value;
    const DType type = b_.at(value).dtype;
    return b_.Alu(Op::kWhere, type, {inside_, value, low_.Identity(op, type)});
  }

  // A maximum or a sum of a row.
  void CarryRow(const UOp* node, int64_t half) {
    const Op op = ReduceOf(node).op();
    ValueId total = -1;
    for (int64_t eight = 0; eight < tile_.steps / kChunk; ++eight)
      for (int64_t element = 0; element < 2; ++element)
        At(half, eight, element, [&] {
          const ValueId value = Within(low_.Emit(node->src[0]), op);
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
  ValueId OverRow(Op op, ValueId value) {
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
  void CarryMaximum(const UOp* max, int64_t half, ValueId of_steps) {
    const ValueId place = b_.Int(half), memory = carried_.at(max);
    const ValueId before = b_.Load(memory, place);
    const ValueId now = b_.Alu(Op::kMax, DType::kF32, {before, of_steps});
    b_.Store(memory, place, now);
    const auto exponential = plan_.online.exponential_of.find(max);
    if (exponential == plan_.online.exponential_of.end()) return;
    const ValueId none = b_.Const(DType::kF32, -std::numeric_limits<double>::infinity());
    const ValueId hidden = b_.Alu(Op::kCmpEq, DType::kBool, {now, none});
    std::vector<ValueId>& subtracted = of_rows_[max];
    subtracted.resize(halves_);
    subtracted[half] = b_.Alu(Op::kWhere, DType::kF32, {hidden, b_.Const(DType::kF32, 0), now});
    low_.Enter();
    low_.together_[max] = subtracted[half];
    low_.memo_[max->src[0]] = before;
    low_.memo_scopes_.back().push_back(max->src[0]);
    std::vector<ValueId>& factors = rescale_[max];
    factors.resize(halves_);
    factors[half] = low_.Emit(exponential->second);
    low_.Leave();
  }

  // The values as MMA's a has them, of each fragment of rows and of steps; rounded together.
  std::vector<ValueId> ValuesOf(const UOp* value) {
    const bool rounded = value->op == Op::kCast && value->src[0]->dtype == DType::kF32;
    const UOp* const before = rounded ? value->src[0] : value;
    std::vector<ValueId> fragments;
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
  int64_t ColumnsOf(const OnlineProduct& product) const {
    return OnlinePadded(plan_.matrices[product.matrix].width) / kChunk;
  }
  int64_t PlaceOf(const OnlineProduct& product, int64_t fragment, int64_t column) const {
    return (fragment * ColumnsOf(product) + column) * 4;
  }

  void CarryProduct(const OnlineProduct& product, ValueId stage) {
    const std::vector<ValueId> values = ValuesOf(product.value);
    const OnlineMatrix& matrix = plan_.matrices[product.matrix];
    const ValueId memory = carried_.at(product.sum);
    const auto max = plan_.online.max_of.find(product.sum);
    const int64_t terms = tile_.steps / kFragment;
    for (int64_t column = 0; column < ColumnsOf(product); column += 2) {
      std::vector<ValueId> sums;
      for (int64_t f = 0; f < tile_.fragments; ++f)
        for (int64_t half = 0; half < 2; ++half) {
          ValueId sum = b_.Add({.code = Code::kLoad,
                                .dtype = DType::kF32,
                                .lanes = 4,
                                .src = {memory, b_.Int(PlaceOf(product, f, column + half))}});
          if (max != plan_.online.max_of.end()) {
            const std::vector<ValueId>& by = rescale_.at(max->second);
            const ValueId upper = by[f * 2], lower = by[f * 2 + 1];
            const ValueId factors = b_.Add({.code = Code::kLanes,
                                            .dtype = DType::kF32,
                                            .lanes = 4,
                                            .src = {upper, upper, lower, lower}});
            sum = b_.Alu(Op::kMul, DType::kF32, {sum, factors});
          }
          sums.push_back(sum);
        }
      for (int64_t term = 0; term < terms; ++term) {
        const ValueId b = matrices_.Fragment(product.matrix, stage, b_.Int(column),
                                             b_.Int(term * 2), false, matrix.across);
        for (int64_t f = 0; f < tile_.fragments; ++f)
          for (int64_t half = 0; half < 2; ++half)
            sums[f * 2 + half] = Multiply(values[f * terms + term], b, half, sums[f * 2 + half]);
      }
      for (int64_t f = 0; f < tile_.fragments; ++f)
        for (int64_t half = 0; half < 2; ++half)
          b_.Store(memory, b_.Int(PlaceOf(product, f, column + half)), sums[f * 2 + half]);
    }
  }

  // ---- what is carried

  void OpenCarried() {
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

  // Results of rows. Where a maximum is -inf, its sums are what exp(-inf - -inf) makes them.
  void Finish(size_t phase) {
    scores_.clear();
    for (const size_t g : plan_.online.phases[phase])
      for (const UOp* node : kernel_.groups[g].nodes) {
        if (plan_.ProductOf(node) != nullptr) continue;
        std::vector<ValueId> values;
        for (int64_t half = 0; half < halves_; ++half) {
          ValueId value = b_.Load(carried_.at(node), b_.Int(half));
          if (ReduceOf(node).op() == Op::kAdd) value = OverRow(Op::kAdd, value);
          values.push_back(OrNan(node, half, value));
        }
        of_rows_[node] = std::move(values);
      }
  }
  ValueId OrNan(const UOp* sum, int64_t half, ValueId value) {
    const auto max = plan_.online.max_of.find(sum);
    if (max == plan_.online.max_of.end()) return value;
    const ValueId none = b_.Const(DType::kF32, -std::numeric_limits<double>::infinity());
    const ValueId greatest = b_.Load(carried_.at(max->second), b_.Int(half));
    return b_.Alu(Op::kWhere, DType::kF32,
                  {b_.Alu(Op::kCmpEq, DType::kBool, {greatest, none}),
                   b_.Const(DType::kF32, std::numeric_limits<double>::quiet_NaN()), value});
  }

  // ---- results

  void Stores() {
    std::vector<const UOp*> of_rows, of_columns;
    RangeSet columns = 0;
    for (const int r : plan_.columns) columns |= RangeSet{1} << r;
    for (const UOp* store : kernel_.stores)
      ((kernel_.DepsOf(store) & columns) == 0 ? of_rows : of_columns).push_back(store);
    for (int64_t half = 0; half < halves_; ++half) {
      low_.Enter();
      const ValueId branch = plan_.row_count % tile_.rows() == 0
                                 ? ValueId{-1}
                                 : b_.If(b_.Less(RowOf(half), b_.Int(plan_.row_count)));
      low_.BindAll(plan_.rows, RowOf(half));
      for (const auto& [node, values] : of_rows_) low_.together_[node] = values[half];
      for (int64_t column = 0; column < OnlinePadded(plan_.column_count) && !of_columns.empty();
           column += kChunk)
        StoreColumns(of_columns, half, column);
      if (!of_rows.empty()) StoreRow(of_rows);
      for (const int r : plan_.rows) low_.Unbind(r);
      if (branch >= 0) b_.EndIf(branch);
      low_.Leave();
    }
  }

  // By the first of the four threads that have the row.
  void StoreRow(const std::vector<const UOp*>& stores) {
    low_.Enter();
    const ValueId branch = b_.If(b_.Alu(Op::kCmpEq, DType::kBool, {member_, b_.Int(0)}));
    for (const int r : plan_.columns) low_.BindPlain(r, b_.Int(0));
    low_.Store(stores);
    for (const int r : plan_.columns) low_.Unbind(r);
    b_.EndIf(branch);
    low_.Leave();
  }

  // Two columns of the eight: as lanes of one store where the first is even in the innermost range.
  void StoreColumns(const std::vector<const UOp*>& stores, int64_t half, int64_t column) {
    const int64_t count = plan_.column_count;
    const ValueId first = b_.Plus(member_, b_.Int(column));
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
  template <typename Body>
  void InColumn(ValueId column, int64_t lanes, const Body& body) {
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

  void StoreAt(const std::vector<const UOp*>& stores, int64_t half, int64_t column, ValueId lane) {
    for (const OnlineProduct& product : plan_.products) {
      const int64_t place =
          PlaceOf(product, half / kRowsOfFragment, column / kChunk) + half % kRowsOfFragment * 2;
      const ValueId sum = b_.Load(carried_.at(product.sum), b_.Plus(b_.Int(place), lane));
      low_.together_[product.sum] = OrNan(product.sum, half, sum);
    }
    low_.Store(stores);
  }

  Lowering low_;
  ProgramBuilder& b_;
  const LoopNest& kernel_;
  const OnlineMmaPlan& plan_;
  const OnlineTile& tile_;
  OnlineMatrices matrices_;
  const int64_t extent_, times_, halves_;
  ValueId thread_ = -1, lane_ = -1, warp_ = -1, member_ = -1;
  ValueId batch_ = -1, origin_ = -1, first_row_ = -1;
  // Of the times that are run: the first one (-1: that is 0), and how many.
  ValueId first_ = -1, count_ = -1;
  bool windowed_ = false;
  ValueId guards_ = -1;                // of the block: by warp, whether a guard fails
  ValueId number_ = -1, inside_ = -1;  // of the time; whether the step that is bound exists
  absl::flat_hash_map<const UOp*, ValueId> carried_;
  // By sum, for each fragment and eight steps; by reduction of a row and by maximum, for each row.
  absl::flat_hash_map<const UOp*, std::vector<ValueId>> scores_, of_rows_, rescale_;
};

absl::StatusOr<Program> LowerOnlineMma(const OnlineMmaPlan& plan) {
  return OnlineMmaLowering(plan).Run();
}

}  // namespace outboard::program
