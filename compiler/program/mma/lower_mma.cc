// Products of matrices by the matrix units of a GPU (compiler/optimize/operands/mma.h).
//
//   copies of the first stages - 1 iterations       COMMIT after each
//   for each iteration:
//     WAIT, BARRIER                                 its operands are there for every warp
//     copies for stages - 1 iterations later        into the stage that was multiplied last
//     COMMIT
//     LDMATRIX, MMA
//   stores                                          any values of a sum, element by element
//
// Past the ends of rows, columns and steps there are zeros in shared memory; beyond those of VARs a
// block leaves at once. Of products that are added each has such a loop, into the same sums.
//
// Three products for one of f32 (AddThreeProducts): x is high + low, high rounded to the 11 digits
// that the unit reads.
// Infinities have no low part: a sum that is not finite is computed once more, by its thread alone.
// Eight-bit floats, which the unit adds with fewer digits, are summed by it over one MMA's steps.
#include <algorithm>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "compiler/divide_up.h"
#include "compiler/optimize/operands/mma_tile.h"
#include "compiler/program/hopper/two_tf32.h"
#include "compiler/program/lower/point_lowering.h"
#include "compiler/program/mma/amd_fragments.h"
#include "compiler/program/mma/mma_products.h"
#include "compiler/program/mma/row_sums.h"
#include "compiler/program/mma/staged_operand.h"
#include "compiler/target.h"

namespace outboard::program {

using codegen::MmaAddend;
using codegen::MmaParts;
using codegen::MmaPlan;
using codegen::MmaProduct;
using codegen::MmaTile;

namespace {

constexpr int64_t kSumsOfFragment = 8;  // of a thread

}  // namespace

class MmaLowering {
 public:
  MmaLowering(const LoopNest& kernel, const MmaPlan& plan)
      : point_(kernel),
        b_(point_.builder()),
        ranges_(point_.ranges()),
        kernel_(kernel),
        product_(plan.product),
        tile_(plan.tile),
        unit_(plan.unit),
        row_sums_(point_, product_.rows, product_.columns, tile_.rows, tile_.columns),
        rows_(point_, plan, /*is_rows=*/true),
        columns_(point_, plan, /*is_rows=*/false) {
    point_.MarkDivided(kernel.OutputSet());
    for (const UOp* store : kernel.stores)
      if (!SumsPoints(store)) stores_.push_back(store);
  }

  Program Run() {
    Place();
    rows_.OpenMemory();
    columns_.OpenMemory();
    const ValueId branch =
        point_.IfBelowEnds(product_, rows_.origin(), tile_.rows, columns_.origin(), tile_.columns);
    fragments_down_ = tile_.rows / tile_.warps_down / kFragment;
    fragments_across_ = tile_.columns / tile_.warps_across / kFragment;
    const int64_t sums = SumOf(fragments_down_, 0, 0);
    sums_ = b_.Alloc(Space::kPrivate, DType::kF32, sums);
    for (int64_t i = 0; i < sums; ++i) b_.Store(sums_, b_.Int(i), b_.Const(DType::kF32, 0));
    point_.OpenScope();
    for (const MmaAddend& addend : product_.addends) Add(addend);
    if (product_.parts == MmaParts::kThree) ComputeAgain();
    Stores();
    point_.CloseScope();
    if (branch >= 0) b_.EndIf(branch);
    return point_.Take();
  }

 private:
  // The block's tile and the warp's part of it.
  void Place() {
    const int64_t down = DivideUp(product_.rows.count, tile_.rows),
                  across = DivideUp(product_.columns.count, tile_.columns);
    const int64_t blocks = product_.batches * down * across;
    const ValueId block = blocks > 1 ? b_.Special(Grid::kBlock, blocks) : b_.Int(0);
    const ValueId thread = b_.Special(Grid::kThread, tile_.threads());
    ranges_.OpenAll(product_.batch, b_.Divide(block, down * across));
    const ValueId in_batch = product_.batches > 1 ? b_.Modulo(block, down * across) : block;
    const int64_t order = codegen::OrderOf(tile_, down);
    const ValueId group = b_.Divide(in_batch, order * across),
                  in_group = b_.Modulo(in_batch, order * across);
    const ValueId row = b_.Plus(b_.Times(group, order), b_.Modulo(in_group, order));
    const ValueId warp = b_.Divide(thread, tile_.warp_threads);
    lane_ = b_.Modulo(thread, tile_.warp_threads);
    rows_.Place(thread, b_.Times(row, tile_.rows), b_.Modulo(warp, tile_.warps_down));
    columns_.Place(thread, b_.Times(b_.Divide(in_group, order), tile_.columns),
                   b_.Divide(warp, tile_.warps_down));
  }

  // Adds all steps of an addend to the sums.
  void Add(const MmaAddend& addend) {
    // The stages of the addend before have been read.
    if (&addend != product_.addends.data()) b_.Barrier();
    rows_.Begin(addend);
    columns_.Begin(addend);
    const bool rows_cleared = rows_.Clear(), columns_cleared = columns_.Clear();
    if (rows_cleared || columns_cleared) b_.Barrier();
    iterations_ = IterationsOf(tile_, addend);
    stages_ = StagesOf(tile_, addend);
    for (int64_t stage = 0; stage == 0 || stage + 1 < stages_; ++stage) {
      Fetch(b_.Int(stage), b_.Int(stage));
      Deposit(b_.Int(stage));
      b_.Add({.code = Code::kCommit});
    }
    MainLoop();
  }

  void Fetch(ValueId iteration, ValueId stage) {
    rows_.Fetch(iteration, stage);
    columns_.Fetch(iteration, stage);
  }
  void Deposit(ValueId stage) {
    rows_.Deposit(stage);
    columns_.Deposit(stage);
  }

  void MainLoop() {
    const int64_t ahead = stages_ - 1;
    const bool computes = rows_.computes() || columns_.computes();
    const ValueId iteration = b_.Loop(iterations_);
    point_.OpenScope();
    b_.Add({.code = Code::kWait, .imm = {std::max<int64_t>(0, ahead - 1), 0, 0}});
    b_.Barrier();
    const ValueId later = b_.Plus(iteration, b_.Int(ahead));
    const ValueId stage = b_.Modulo(later, stages_);
    if (ahead > 0) {
      const ValueId more = b_.If(b_.Less(later, b_.Int(iterations_)));
      point_.OpenScope();
      Fetch(later, stage);
      point_.CloseScope();
      b_.EndIf(more);
      b_.Add({.code = Code::kCommit});
    }
    Multiply(b_.Modulo(iteration, stages_));
    if (ahead > 0 && computes) {
      const ValueId more = b_.If(b_.Less(later, b_.Int(iterations_)));
      Deposit(stage);
      b_.EndIf(more);
    }
    point_.CloseScope();
    b_.End(iteration);
  }

  void Multiply(ValueId stage) {
    const int64_t depth = kMmaDepthBytes / ByteWidth(product_.dtype);
    for (int64_t step = 0; step < tile_.steps / depth; ++step) {
      std::vector<ValueId> rows, columns;
      for (int64_t i = 0; i < fragments_down_; ++i) rows.push_back(rows_.Load(stage, i, step));
      for (int64_t j = 0; j < fragments_across_; ++j)
        columns.push_back(columns_.Load(stage, j, step));
      switch (product_.parts) {
        case MmaParts::kRounded:
          for (ValueId& row : rows) row = RoundedToTf32(b_, row);
          for (ValueId& column : columns) column = RoundedToTf32(b_, column);
          [[fallthrough]];
        case MmaParts::kWhole:
          EachSum([&](int64_t i, int64_t j, ValueId before) {
            if (IsAmd())
              return b_.Add({.code = Code::kMma,
                             .dtype = DType::kF32,
                             .lanes = SumLanes(),
                             .src = {rows[i], columns[j], before},
                             .imm = {static_cast<int64_t>(unit_), 0, 0}});
            if (ByteWidth(product_.dtype) > 1)
              return AddProduct(b_, rows[i], columns[j / 2], j % 2, before);
            const ValueId sum = AddProduct(b_, rows[i], columns[j / 2], j % 2, ZeroSums(b_));
            return b_.Alu(Op::kAdd, DType::kF32, {before, sum});
          });
          break;
        case MmaParts::kThree: MultiplyParts(rows, columns); break;
      }
    }
  }

  void MultiplyParts(const std::vector<ValueId>& rows, const std::vector<ValueId>& columns) {
    std::vector<TwoTf32> of_rows, of_columns;
    for (const ValueId row : rows) of_rows.push_back(SplitRounded(b_, row));
    for (const ValueId column : columns) of_columns.push_back(SplitRounded(b_, column));
    EachSum([&](int64_t i, int64_t j, ValueId before) {
      return AddThreeProducts(b_, of_rows[i], of_columns[j / 2], j % 2, before);
    });
  }

  // Replaces the sums of each 16 rows and 8 columns (of AMD's units 16) by what `next` makes of
  // them.
  template <typename Next>
  void EachSum(const Next& next) {
    for (int64_t i = 0; i < fragments_down_; ++i)
      for (int64_t j = 0; j < fragments_across_ * (IsAmd() ? 1 : 2); ++j) {
        const ValueId place = b_.Int(SumOf(i, j, 0));
        const ValueId before = b_.Add({.code = Code::kLoad,
                                       .dtype = DType::kF32,
                                       .lanes = SumLanes(),
                                       .src = {sums_, place}});
        b_.Store(sums_, place, next(i, j, before));
      }
  }

  // The thread's sums that are infinite or NaN, in f32.
  void ComputeAgain() {
    const int64_t sums = fragments_down_ * fragments_across_ * kSumsOfFragment;
    const ValueId sum = b_.Loop(sums);
    point_.OpenScope();
    const ValueId again = b_.If(IsInfiniteOrNan(b_, b_.Load(sums_, sum)));
    point_.OpenScope();
    const ValueId fragment = b_.Divide(sum, 4), element = b_.Modulo(sum, 4);
    const ValueId row = b_.Plus(b_.Times(b_.Divide(fragment, fragments_across_ * 2), kFragment),
                                b_.Times(b_.Divide(element, 2), 8));
    const ValueId column =
        b_.Plus(b_.Times(b_.Modulo(fragment, fragments_across_ * 2), 8), b_.Modulo(element, 2));
    Inside(rows_, b_.Plus(FirstRow(), row), 1, [&] {
      Inside(columns_, b_.Plus(FirstColumn(), column), 1,
             [&] { b_.Store(sums_, sum, PlainSum()); });
    });
    point_.CloseScope();
    b_.EndIf(again);
    point_.CloseScope();
    b_.End(sum);
  }
  ValueId PlainSum() {
    const ValueId total = b_.Alloc(Space::kPrivate, DType::kF32, 1);
    b_.Store(total, b_.Int(0), b_.Const(DType::kF32, 0));
    for (const MmaAddend& addend : product_.addends) {
      const ValueId step = b_.Loop(addend.steps);
      point_.OpenScope();
      ranges_.OpenAll(addend.reduced, step);
      ValueId term = b_.Cast(point_.Emit(addend.term), DType::kF32);
      for (const UOp* gate : addend.gates)
        term = b_.Alu(Op::kWhere, DType::kF32, {point_.Emit(gate), term, b_.Const(DType::kF32, 0)});
      const ValueId sum = point_.Combine(Op::kAdd, b_.Load(total, b_.Int(0)), term);
      b_.Store(total, b_.Int(0), sum);
      ranges_.CloseAll(addend.reduced);
      point_.CloseScope();
      b_.End(step);
    }
    return b_.Load(total, b_.Int(0));
  }

  bool IsAmd() const { return unit_ != MatrixUnit::kMma; }
  int SumLanes() const { return IsAmd() ? AmdSumLanes(unit_) : 4; }
  // Of the fragment i of rows and the 8 columns (of AMD's units 16) j.
  int64_t SumOf(int64_t i, int64_t j, int64_t lane) const {
    return (i * fragments_across_ * (IsAmd() ? 1 : 2) + j) * SumLanes() + lane;
  }

  // Of a thread's sums, the first one's.
  ValueId FirstRow() { return b_.Plus(rows_.FirstOfWarp(), b_.Divide(lane_, 4)); }
  ValueId FirstColumn() {
    return b_.Plus(columns_.FirstOfWarp(), b_.Times(b_.Modulo(lane_, 4), 2));
  }

  // AmdElement's elements of c: of one column.
  void StoresForAmd() {
    const ValueId first_row = b_.Plus(rows_.FirstOfWarp(), FirstAmdRow(b_, unit_, lane_)),
                  first_column = b_.Plus(columns_.FirstOfWarp(), b_.Modulo(lane_, kFragment));
    for (int64_t i = 0; i < fragments_down_; ++i)
      for (int64_t lane = 0; lane < SumLanes(); ++lane)
        Inside(rows_, b_.Plus(first_row, b_.Int(i * kFragment + AmdRow(unit_, lane))), 1, [&] {
          for (int64_t j = 0; j < fragments_across_; ++j)
            Inside(columns_, b_.Plus(first_column, b_.Int(j * kFragment)), 1,
                   [&] { StoreAt(b_.Int(SumOf(i, j, lane)), -1, -1); });
        });
  }

  // MmaElement's elements of c: two that are side by side, in a row and in the row 8 below.
  void Stores() {
    if (IsAmd()) return StoresForAmd();
    const ValueId first_row = FirstRow(), first_column = FirstColumn();
    const bool pairs =
        kernel_.ranges[product_.columns.ranges.back()].extent % 2 == 0 && !columns_.has_slots();
    const auto column_of = [&](int64_t j) { return b_.Plus(first_column, b_.Int(j * 8)); };
    const auto row_of = [&](int64_t i, int64_t half) {
      return b_.Plus(first_row, b_.Int(i * kFragment + half * 8));
    };
    const auto store = [&](int64_t i, int64_t j, int64_t half) {
      if (pairs) StorePair(column_of(j), SumOf(i, j, half * 2), half);
      for (int64_t lane = 0; !pairs && lane < 2; ++lane)
        Inside(columns_, b_.Plus(column_of(j), b_.Int(lane)), 1,
               [&] { StoreAt(b_.Int(SumOf(i, j, half * 2 + lane)), b_.Int(lane), half); });
    };
    if (row_sums_.any()) {
      for (int64_t i = 0; i < fragments_down_; ++i)
        for (int64_t j = 0; j < fragments_across_ * 2; ++j) {
          row_sums_.Clear();
          for (const int64_t half : {0, 1})
            Inside(rows_, row_of(i, half), 1, [&] { store(i, j, half); });
          row_sums_.Store(lane_, b_.Plus(rows_.FirstOfWarp(), b_.Int(i * kFragment)), column_of(j));
        }
      return;
    }
    RangeSet rows = 0;
    for (const int r : product_.rows.ranges) rows |= RangeSet{1} << r;
    const bool is_short = IsShortOfRegisters();
    for (int64_t i = 0; i < fragments_down_; ++i)
      for (int64_t half = 0; half < 2; ++half)
        Inside(rows_, row_of(i, half), 1, [&] {
          if (is_short) point_.LoadAgain(rows);
          for (int64_t j = 0; j < fragments_across_ * 2; ++j) store(i, j, half);
        });
  }

  // Whether sums take half of a thread's registers, and much is computed of each: the assembler
  // then computes several results side by side, and has no registers left for what is loaded once
  // for all rows.
  bool IsShortOfRegisters() const {
    constexpr int64_t kManySums = 128, kManyOperations = 12;
    return SumOf(fragments_down_, 0, 0) >= kManySums && OperationsBesideSum() >= kManyOperations;
  }
  // Of what the stores compute from a sum.
  int64_t OperationsBesideSum() const {
    std::vector<const UOp*> stack;
    absl::flat_hash_set<const UOp*> seen = {product_.sum};
    for (const UOp* store : stores_) stack.push_back(store->src[1]);
    int64_t operations = 0;
    while (!stack.empty()) {
      const UOp* const node = stack.back();
      stack.pop_back();
      if (!seen.insert(node).second || node->op == Op::kLoad) continue;
      operations += IsAlu(node->op);
      stack.insert(stack.end(), node->src.begin(), node->src.end());
    }
    return operations;
  }

  // Calls `body` where the row or column exists, and `count` - 1 more after it, with its ranges
  // open.
  template <typename Body>
  void Inside(StagedOperand& operand, ValueId index, int64_t count, const Body& body) {
    point_.OpenScope();
    const int64_t all = operand.side().count;
    ValueId inside = -1;
    if (operand.has_slots())
      inside = operand.OpenSlots(index);
    else if (all % operand.tile_size() != 0)
      inside = b_.Less(b_.Plus(index, b_.Int(count - 1)), b_.Int(all));
    const ValueId branch = inside < 0 ? ValueId{-1} : b_.If(inside);
    if (!operand.has_slots()) ranges_.OpenAll(operand.side().ranges, index);
    body();
    ranges_.CloseAll(operand.side().ranges);
    if (branch >= 0) b_.EndIf(branch);
    point_.CloseScope();
  }

  // Two columns as lanes: the first is even, and so is the inner range's extent.
  void StorePair(ValueId column, int64_t sum, int64_t half) {
    Inside(columns_, column, 2, [&] {
      const int inner = product_.columns.ranges.back();
      const ValueId first = ranges_[inner].value;
      // Always true. It tells the proof of range what parity does.
      const ValueId branch =
          product_.columns.ranges.size() == 1
              ? ValueId{-1}
              : b_.If(b_.Less(b_.Plus(first, b_.Int(1)), b_.Int(kernel_.ranges[inner].extent)));
      const ValueId lane = b_.Loop(2, How::kVector, 2);
      point_.OpenScope();
      ranges_.Open(inner, b_.Plus(first, lane));
      StoreAt(b_.Plus(b_.Int(sum), lane), lane, half);
      point_.CloseScope();
      b_.End(lane);
      if (branch >= 0) b_.EndIf(branch);
    });
  }

  void StoreAt(ValueId sum, ValueId lane, int64_t half) {
    point_.Provide(product_.sum, b_.Load(sums_, sum));
    if (row_sums_.any()) row_sums_.Keep(half, lane);
    point_.Store(stores_);
  }

  PointLowering point_;
  ProgramBuilder& b_;
  OpenRanges& ranges_;
  const LoopNest& kernel_;
  const MmaProduct& product_;
  const MmaTile& tile_;
  const MatrixUnit unit_;
  RowSums row_sums_;
  StagedOperand rows_, columns_;
  std::vector<const UOp*> stores_;  // but those of row_sums_
  int64_t iterations_ = 0, stages_ = 0;  // of the addend that is summed now
  int64_t fragments_down_ = 0, fragments_across_ = 0;
  ValueId lane_ = -1, sums_ = -1;
};

absl::StatusOr<Program> LowerMma(const LoopNest& kernel, const MmaPlan& plan) {
  return MmaLowering(kernel, plan).Run();
}

}  // namespace outboard::program
