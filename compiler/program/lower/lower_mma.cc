// Products of matrices by the matrix units of a GPU (compiler/optimize/operands/mma.h).
//
//   copies of the first stages - 1 times            COMMIT after each
//   for each time:
//     WAIT, BARRIER                                 its operands are there for every warp
//     copies of the time that is stages - 1 later   into the stage that was multiplied last
//     COMMIT
//     LDMATRIX, MMA
//   stores                                          any values of a sum, element by element
//
// Past the ends of rows, columns and steps there are zeros in shared memory; beyond those of VARs a
// block leaves at once. Of products that are added each has such a loop, into the same sums.
//
// Three products for one of f32: x is high + low, high rounded to the 11 digits that the unit
// reads. low * high, high * low and high * high of one MMA's steps are summed by the unit from 0
// on, and that is added to the sum as everything in f32 is: units cut digits off, which must not
// add up.
// Infinities have no low part: a sum that is not finite is computed once more, by its thread alone.
// Eight-bit floats, which the unit adds with fewer digits, are summed by it over one MMA's steps.
#include <algorithm>

#include "base/check.h"
#include "compiler/optimize/operands/mma_tile.h"
#include "compiler/program/hopper/two_tf32.h"
#include "compiler/program/lower/amd_fragments.h"
#include "compiler/program/lower/lowering.h"
#include "compiler/program/lower/row_sums.h"
#include "compiler/target.h"

namespace outboard::program {

using codegen::MmaAddend;
using codegen::MmaFactor;
using codegen::MmaParts;
using codegen::MmaPlan;
using codegen::MmaProduct;
using codegen::MmaSide;
using codegen::MmaTile;

namespace {

constexpr int64_t kFragment = 16, kMatrixSide = 8, kSumsOfFragment = 8;
constexpr int64_t kChunkBytes = 16;

int64_t TimesOf(int64_t count, int64_t size) { return (count + size - 1) / size; }

}  // namespace

class MmaLowering {
 public:
  MmaLowering(const LoopNest& kernel, const MmaPlan& plan)
      : low_(kernel, nullptr),
        b_(low_.b_),
        kernel_(kernel),
        product_(plan.product),
        tile_(plan.tile),
        unit_(plan.unit),
        row_sums_(low_, product_, tile_.rows, tile_.columns),
        chunk_(kChunkBytes / ByteWidth(product_.dtype)),
        depth_(2 * chunk_) {
    low_.mapped_ = kernel.OutputSet();
  }

  Program Run() {
    Place();
    OpenMemory(rows_);
    OpenMemory(columns_);
    const ValueId branch = low_.IfBelowEnds(product_, rows_.origin, tile_.rows, columns_.origin,
                                            tile_.columns);
    fragments_down_ = tile_.rows / tile_.warps_down / kFragment;
    fragments_across_ = tile_.columns / tile_.warps_across / kFragment;
    const int64_t sums = SumOf(fragments_down_, 0, 0);
    sums_ = b_.Alloc(Space::kPrivate, DType::kF32, sums);
    for (int64_t i = 0; i < sums; ++i) b_.Store(sums_, b_.Int(i), b_.Const(DType::kF32, 0));
    low_.Enter();
    for (const MmaAddend& addend : product_.addends) Add(addend);
    if (product_.parts == MmaParts::kThree) ComputeAgain();
    Stores();
    low_.Leave();
    if (branch >= 0) b_.EndIf(branch);
    return b_.Take(static_cast<int>(kernel_.slot_elements.size()));
  }

 private:
  // An operand in shared memory: lines of `length` elements, in chunks of 16 bytes that are turned
  // around from line to line, so that 8 chunks of a column lie in all 32 banks. No instruction
  // turns matrices of f32: the threads read their elements, of two chunks in four lines at a time,
  // and lines are turned twice as far.
  struct Operand {
    const MmaSide* side = nullptr;
    const MmaFactor* of = nullptr;  // the addend that is summed now
    int64_t tile = 0;                // rows or columns of it
    ValueId origin = -1, warp = -1;
    int64_t warp_size = 0;
    int64_t lines = 0, length = 0, pieces = 0;  // a thread's pieces of a stage
    ValueId memory = -1;
    ValueId values = -1;  // private: what is computed rather than copied
  };

  int64_t Chunks(const Operand& operand) const { return operand.length / chunk_; }
  bool TakesElements(const Operand& operand) const {
    return operand.of->across && product_.dtype == DType::kF32;
  }

  // The block's tile and the warp's part of it.
  void Place() {
    const int64_t down = TimesOf(product_.rows.count, tile_.rows),
                  across = TimesOf(product_.columns.count, tile_.columns);
    const int64_t blocks = product_.batches * down * across;
    const ValueId block = blocks > 1 ? b_.Special(Grid::kBlock, blocks) : b_.Int(0);
    thread_ = b_.Special(Grid::kThread, tile_.threads());
    low_.BindAll(product_.batch, b_.Divide(block, down * across));
    const ValueId in_batch = product_.batches > 1 ? b_.Modulo(block, down * across) : block;
    const int64_t order = codegen::OrderOf(tile_, down);
    const ValueId group = b_.Divide(in_batch, order * across),
                  in_group = b_.Modulo(in_batch, order * across);
    const ValueId row = b_.Plus(b_.Times(group, order), b_.Modulo(in_group, order));
    rows_.origin = b_.Times(row, tile_.rows);
    columns_.origin = b_.Times(b_.Divide(in_group, order), tile_.columns);
    const ValueId warp = b_.Divide(thread_, tile_.warp_threads);
    lane_ = b_.Modulo(thread_, tile_.warp_threads);
    rows_.warp = b_.Modulo(warp, tile_.warps_down);
    columns_.warp = b_.Divide(warp, tile_.warps_down);
    rows_.side = &product_.rows;
    columns_.side = &product_.columns;
    rows_.tile = tile_.rows;
    columns_.tile = tile_.columns;
    rows_.warp_size = tile_.rows / tile_.warps_down;
    columns_.warp_size = tile_.columns / tile_.warps_across;
  }

  int64_t StagesOf(const MmaAddend& addend) const {
    return std::min(tile_.stages, TimesOf(addend.steps, tile_.steps));
  }
  int64_t PiecesOf(const Operand& operand, const MmaFactor& of) const {
    return operand.tile * tile_.steps / of.run / tile_.threads();
  }

  // For all addends.
  void OpenMemory(Operand& operand) {
    int64_t stages = 0, computed = 0;
    for (const MmaAddend& addend : product_.addends) {
      const MmaFactor& of = &operand == &rows_ ? addend.rows : addend.columns;
      stages = std::max(stages, StagesOf(addend));
      if (!of.copied) computed = std::max(computed, PiecesOf(operand, of));
    }
    operand.memory = b_.Alloc(Space::kShared, product_.dtype, stages * operand.tile * tile_.steps);
    if (computed > 0) operand.values = b_.Alloc(Space::kPrivate, product_.dtype, computed);
  }

  void Open(Operand& operand, const MmaFactor& of) {
    operand.of = &of;
    operand.lines = of.across ? tile_.steps : operand.tile;
    operand.length = of.across ? operand.tile : tile_.steps;
    operand.pieces = PiecesOf(operand, of);
  }

  // Adds all steps of an addend to the sums.
  void Add(const MmaAddend& addend) {
    // The stages of the addend before have been read.
    if (addend_ != nullptr) b_.Barrier();
    addend_ = &addend;
    Open(rows_, addend.rows);
    Open(columns_, addend.columns);
    times_ = TimesOf(addend.steps, tile_.steps);
    stages_ = StagesOf(addend);
    for (int64_t stage = 0; stage == 0 || stage + 1 < stages_; ++stage) {
      Fetch(b_.Int(stage), b_.Int(stage));
      Deposit(b_.Int(stage));
      b_.Add({.code = Code::kCommit});
    }
    MainLoop();
  }

  // The first element of a chunk of a line, whose number is `low` modulo 8.
  ValueId ElementOf(const Operand& operand, ValueId stage, ValueId line, ValueId low,
                    ValueId chunk) {
    const int64_t chunks = Chunks(operand);
    ValueId turned = chunk;
    if (chunks > 1) {
      const ValueId turns = chunks >= 8 ? low : b_.Divide(low, 8 / chunks);
      turned = b_.Plus(chunk, b_.Times(turns, TakesElements(operand) ? 2 : 1));
    }
    const ValueId in_line = b_.Times(b_.Modulo(turned, chunks), chunk_);
    const ValueId first =
        b_.Plus(b_.Times(stage, operand.lines * operand.length), b_.Times(line, operand.length));
    return b_.Plus(first, in_line);
  }

  // A thread's piece: its place in the tile, and where that is in the kernel.
  struct Piece {
    ValueId line;
    ValueId number;  // in the line
    ValueId column;
  };
  Piece PieceOf(const Operand& operand, int64_t number) {
    const int64_t in_line = operand.length / operand.of->run, threads = tile_.threads();
    Piece piece;
    if (threads % in_line == 0) {
      piece.line = b_.Plus(b_.Divide(thread_, in_line), b_.Int(number * (threads / in_line)));
      piece.number = b_.Modulo(thread_, in_line);
    } else {
      const ValueId of_all = b_.Plus(thread_, b_.Int(number * threads));
      piece.line = b_.Divide(of_all, in_line);
      piece.number = b_.Modulo(of_all, in_line);
    }
    piece.column = b_.Times(piece.number, operand.of->run);
    return piece;
  }
  ValueId TargetOf(const Operand& operand, const Piece& piece, ValueId stage) {
    const int64_t in_chunk = chunk_ / operand.of->run;
    const ValueId element = ElementOf(operand, stage, piece.line, b_.Modulo(piece.line, 8),
                                      b_.Divide(piece.number, in_chunk));
    return b_.Plus(element, b_.Times(b_.Modulo(piece.number, in_chunk), operand.of->run));
  }

  // Binds the ranges of a piece; returns the condition that it exists, -1: it does.
  ValueId Bind(const Operand& operand, const Piece& piece, ValueId time) {
    const MmaFactor& of = *operand.of;
    const MmaSide& side = *operand.side;
    const ValueId along = of.across ? piece.column : piece.line;
    const ValueId index = b_.Plus(operand.origin, along);
    const ValueId step =
        b_.Plus(b_.Times(time, tile_.steps), of.across ? piece.line : piece.column);
    ValueId inside = -1;
    const auto below = [&](ValueId value, int64_t count, int64_t size, bool runs) {
      if (count % size == 0) return;
      const ValueId last = runs ? b_.Plus(value, b_.Int(of.run - 1)) : value;
      inside = low_.And(inside, b_.Less(last, b_.Int(count)));
    };
    below(index, side.count, operand.tile, of.across);
    below(step, addend_->steps, tile_.steps, !of.across);
    low_.BindAll(side.ranges, index);
    low_.BindAll(addend_->reduced, step);
    for (const int r : addend_->reduced)
      if (const UOp* const end = kernel_.ranges[r].end())
        inside = low_.And(inside, b_.Less(low_.value_[r], low_.Emit(end)));
    return inside;
  }
  void Unbind(const Operand& operand) {
    for (const int r : operand.side->ranges) low_.Unbind(r);
    for (const int r : addend_->reduced) low_.Unbind(r);
  }

  // Begins the copies of a time, and computes what is not copied.
  void Fetch(ValueId time, ValueId stage) {
    for (const Operand* operand : {&rows_, &columns_})
      for (int64_t number = 0; number < operand->pieces; ++number) {
        low_.Enter();
        const Piece piece = PieceOf(*operand, number);
        const ValueId inside = Bind(*operand, piece, time);
        const UOp* const value = operand->of->value;
        if (operand->of->copied) {
          Copy(*operand, TargetOf(*operand, piece, stage), inside);
        } else {
          const ValueId place = b_.Int(number);
          if (inside >= 0) b_.Store(operand->values, place, b_.Const(product_.dtype, 0));
          const ValueId branch = inside < 0 ? -1 : b_.If(inside);
          low_.Enter();
          b_.Store(operand->values, place, low_.Emit(value));
          low_.Leave();
          if (branch >= 0) b_.EndIf(branch);
        }
        Unbind(*operand);
        low_.Leave();
      }
  }

  void Copy(const Operand& operand, ValueId target, ValueId inside) {
    const UOp* const load = operand.of->value;
    const int64_t run = operand.of->run;
    Instruction copy{.code = Code::kCopy, .imm = {run, run > 1 ? 1 : 0, 0}};
    const ValueId gate = load->src.size() == 3 ? low_.Gate(Conjuncts(load->src[1])) : ValueId{-1};
    const ValueId index = low_.Emit(load->src[0]->src[1]);
    copy.src = {operand.memory, target, low_.buffers_[GlobalOfAccess(load).slot()], index};
    const ValueId mask = low_.And(inside, gate);
    if (mask >= 0) copy.src.push_back(mask);
    b_.Add(std::move(copy));
  }

  // Stores what was computed to shared memory.
  void Deposit(ValueId stage) {
    for (const Operand* operand : {&rows_, &columns_})
      for (int64_t number = 0; !operand->of->copied && number < operand->pieces; ++number)
        b_.Store(operand->memory, TargetOf(*operand, PieceOf(*operand, number), stage),
                 b_.Load(operand->values, b_.Int(number)));
  }

  void MainLoop() {
    const int64_t ahead = stages_ - 1;
    const bool computes = !addend_->rows.copied || !addend_->columns.copied;
    const ValueId time = b_.Loop(times_);
    low_.Enter();
    b_.Add({.code = Code::kWait, .imm = {std::max<int64_t>(0, ahead - 1), 0, 0}});
    b_.Barrier();
    const ValueId later = b_.Plus(time, b_.Int(ahead));
    const ValueId stage = b_.Modulo(later, stages_);
    if (ahead > 0) {
      const ValueId more = b_.If(b_.Less(later, b_.Int(times_)));
      low_.Enter();
      Fetch(later, stage);
      low_.Leave();
      b_.EndIf(more);
      b_.Add({.code = Code::kCommit});
    }
    Multiply(b_.Modulo(time, stages_));
    if (ahead > 0 && computes) {
      const ValueId more = b_.If(b_.Less(later, b_.Int(times_)));
      Deposit(stage);
      b_.EndIf(more);
    }
    low_.Leave();
    b_.End(time);
  }

  // One fragment of 16 by two chunks: four matrices of 8 by a chunk. Those of rows are (first 8
  // rows, first steps), (last, first), (first, last), (last, last), as MMA's a has them; those of
  // columns are (first 8 columns, first steps), (first, last), (last, first), (last, last): two of
  // its b.
  ValueId Load(const Operand& operand, ValueId stage, int64_t fragment, int64_t step) {
    if (IsAmd()) return LoadForAmd(operand, stage, fragment, step);
    if (TakesElements(operand)) return LoadElements(operand, stage, fragment, step);
    const bool is_rows = &operand == &rows_, across = operand.of->across;
    const ValueId low = b_.Modulo(lane_, 8), second = b_.Divide(lane_, 16),
                  first = b_.Modulo(b_.Divide(lane_, 8), 2);
    const ValueId own = is_rows ? first : second, steps = is_rows ? second : first;
    const ValueId begin = b_.Times(operand.warp, operand.warp_size / kMatrixSide);
    const ValueId own_matrix = b_.Plus(b_.Plus(begin, b_.Int(fragment * 2)), own);
    const ValueId step_chunk = b_.Plus(b_.Int(step * 2), steps);
    const ValueId line = b_.Plus(b_.Times(across ? step_chunk : own_matrix, kMatrixSide), low);
    return b_.Add({.code = Code::kLdmatrix,
                   .dtype = product_.dtype,
                   .lanes = 4 * MmaPacked(product_.dtype),
                   .src = {operand.memory,
                           ElementOf(operand, stage, line, low, across ? own_matrix : step_chunk)},
                   .imm = {across ? 1 : 0, 0, 0}});
  }

  ValueId LoadForAmd(const Operand& operand, ValueId stage, int64_t fragment, int64_t step) {
    const ValueId along =
        b_.Plus(b_.Times(operand.warp, operand.warp_size),
                b_.Plus(b_.Int(fragment * kFragment), b_.Modulo(lane_, kFragment)));
    const auto element = [&](ValueId line, ValueId low, ValueId chunk) {
      return ElementOf(operand, stage, line, low, chunk);
    };
    return LoadAmdOperand(b_, unit_,
                          {operand.memory, product_.dtype, chunk_, operand.of->across, element},
                          lane_, along, step * depth_);
  }

  // The same of f32 whose rows or columns lie side by side, in the same order.
  ValueId LoadElements(const Operand& operand, ValueId stage, int64_t fragment, int64_t step) {
    const ValueId begin = b_.Plus(b_.Times(operand.warp, operand.warp_size),
                                  b_.Plus(b_.Int(fragment * kFragment), b_.Divide(lane_, 4)));
    Instruction all{.code = Code::kLanes, .dtype = product_.dtype, .lanes = 4};
    for (int64_t matrix = 0; matrix < 4; ++matrix) {
      const bool is_rows = &operand == &rows_;
      const int64_t own = is_rows ? matrix % 2 : matrix / 2;
      const int64_t steps = is_rows ? matrix / 2 : matrix % 2;
      const ValueId number = b_.Plus(begin, b_.Int(own * kMatrixSide));
      const ValueId line = b_.Plus(b_.Modulo(lane_, 4), b_.Int(step * depth_ + steps * chunk_));
      const ValueId first =
          ElementOf(operand, stage, line, b_.Modulo(line, 8), b_.Divide(number, chunk_));
      all.src.push_back(b_.Load(operand.memory, b_.Plus(first, b_.Modulo(number, chunk_))));
    }
    return b_.Add(std::move(all));
  }

  ValueId Zeros() { return b_.Splat(b_.Const(DType::kF32, 0), 4); }
  ValueId Product(ValueId row, ValueId column, int64_t half, ValueId sum) {
    return b_.Add({.code = Code::kMma,
                   .dtype = DType::kF32,
                   .lanes = 4,
                   .src = {row, column, sum},
                   .imm = {half, 0, 0}});
  }

  void Multiply(ValueId stage) {
    for (int64_t step = 0; step < tile_.steps / depth_; ++step) {
      std::vector<ValueId> rows, columns;
      for (int64_t i = 0; i < fragments_down_; ++i) rows.push_back(Load(rows_, stage, i, step));
      for (int64_t j = 0; j < fragments_across_; ++j)
        columns.push_back(Load(columns_, stage, j, step));
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
              return Product(rows[i], columns[j / 2], j % 2, before);
            const ValueId sum = Product(rows[i], columns[j / 2], j % 2, Zeros());
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
      const TwoTf32 &row = of_rows[i], &column = of_columns[j / 2];
      ValueId sum = Product(row.low, column.high, j % 2, Zeros());
      sum = Product(row.high, column.low, j % 2, sum);
      sum = Product(row.high, column.high, j % 2, sum);
      return b_.Alu(Op::kAdd, DType::kF32, {before, sum});
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
    low_.Enter();
    const ValueId again = b_.If(IsInfiniteOrNan(b_, b_.Load(sums_, sum)));
    low_.Enter();
    const ValueId fragment = b_.Divide(sum, 4), element = b_.Modulo(sum, 4);
    const ValueId row = b_.Plus(b_.Times(b_.Divide(fragment, fragments_across_ * 2), kFragment),
                                b_.Times(b_.Divide(element, 2), 8));
    const ValueId column =
        b_.Plus(b_.Times(b_.Modulo(fragment, fragments_across_ * 2), 8), b_.Modulo(element, 2));
    Inside(rows_, b_.Plus(FirstRow(), row), 1, [&] {
      Inside(columns_, b_.Plus(FirstColumn(), column), 1,
             [&] { b_.Store(sums_, sum, PlainSum()); });
    });
    low_.Leave();
    b_.EndIf(again);
    low_.Leave();
    b_.End(sum);
  }
  ValueId PlainSum() {
    const ValueId total = b_.Alloc(Space::kPrivate, DType::kF32, 1);
    b_.Store(total, b_.Int(0), b_.Const(DType::kF32, 0));
    for (const MmaAddend& addend : product_.addends) {
      const ValueId step = b_.Loop(addend.steps);
      low_.Enter();
      low_.BindAll(addend.reduced, step);
      ValueId term = b_.Cast(low_.Emit(addend.term), DType::kF32);
      for (const UOp* gate : addend.gates)
        term = b_.Alu(Op::kWhere, DType::kF32, {low_.Emit(gate), term, b_.Const(DType::kF32, 0)});
      Instruction sum{.code = Code::kAlu, .op = Op::kAdd, .dtype = DType::kF32};
      sum.src = {b_.Load(total, b_.Int(0)), term};
      sum.imm[0] = static_cast<int64_t>(Rounding::kWithProduct);
      b_.Store(total, b_.Int(0), b_.Add(std::move(sum)));
      for (const int r : addend.reduced) low_.Unbind(r);
      low_.Leave();
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
  ValueId FirstRow() { return Start(rows_, b_.Divide(lane_, 4)); }
  ValueId FirstColumn() { return Start(columns_, b_.Times(b_.Modulo(lane_, 4), 2)); }
  ValueId Start(const Operand& operand, ValueId at) {
    return b_.Plus(b_.Plus(operand.origin, b_.Times(operand.warp, operand.warp_size)), at);
  }

  // AmdElement's elements of c: of one column.
  void StoresForAmd() {
    const ValueId first_row = Start(rows_, FirstAmdRow(b_, unit_, lane_)),
                  first_column = Start(columns_, b_.Modulo(lane_, kFragment));
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
    const bool pairs = kernel_.ranges[product_.columns.ranges.back()].extent % 2 == 0;
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
          row_sums_.Store(lane_, b_.Plus(Start(rows_, b_.Int(0)), b_.Int(i * kFragment)),
                          column_of(j));
        }
      return;
    }
    for (int64_t i = 0; i < fragments_down_; ++i)
      for (int64_t half = 0; half < 2; ++half)
        Inside(rows_, row_of(i, half), 1, [&] {
          for (int64_t j = 0; j < fragments_across_ * 2; ++j) store(i, j, half);
        });
  }

  // Calls `body` where the row or column exists, and `count` - 1 more after it, with its ranges
  // bound.
  template <typename Body>
  void Inside(const Operand& operand, ValueId index, int64_t count, const Body& body) {
    low_.Enter();
    const int64_t all = operand.side->count;
    const ValueId branch = all % operand.tile == 0
                               ? ValueId{-1}
                               : b_.If(b_.Less(b_.Plus(index, b_.Int(count - 1)), b_.Int(all)));
    low_.BindAll(operand.side->ranges, index);
    body();
    for (const int r : operand.side->ranges) low_.Unbind(r);
    if (branch >= 0) b_.EndIf(branch);
    low_.Leave();
  }

  // Two columns as lanes: the first is even, and so is the inner range's extent.
  void StorePair(ValueId column, int64_t sum, int64_t half) {
    Inside(columns_, column, 2, [&] {
      const int inner = product_.columns.ranges.back();
      const ValueId first = low_.value_[inner];
      // Always true. It tells the proof of range what parity does.
      const ValueId branch =
          product_.columns.ranges.size() == 1
              ? ValueId{-1}
              : b_.If(b_.Less(b_.Plus(first, b_.Int(1)), b_.Int(kernel_.ranges[inner].extent)));
      const ValueId lane = b_.Loop(2, How::kVector, 2);
      low_.Enter();
      low_.BindPlain(inner, b_.Plus(first, lane));
      StoreAt(b_.Plus(b_.Int(sum), lane), lane, half);
      low_.Leave();
      b_.End(lane);
      if (branch >= 0) b_.EndIf(branch);
    });
  }

  void StoreAt(ValueId sum, ValueId lane, int64_t half) {
    low_.together_[product_.sum] = b_.Load(sums_, sum);
    if (row_sums_.any()) row_sums_.Keep(half, lane);
    low_.Stores();
  }

  Lowering low_;
  ProgramBuilder& b_;
  const LoopNest& kernel_;
  const MmaProduct& product_;
  const MmaTile& tile_;
  const MatrixUnit unit_;
  RowSums row_sums_;
  const int64_t chunk_, depth_;        // elements: of 16 bytes, and steps of an MMA
  const MmaAddend* addend_ = nullptr;  // that is summed now
  int64_t times_ = 0, stages_ = 0;     // of it
  int64_t fragments_down_ = 0, fragments_across_ = 0;
  ValueId thread_ = -1, lane_ = -1, sums_ = -1;
  Operand rows_, columns_;
};

absl::StatusOr<Program> LowerMma(const LoopNest& kernel, const MmaPlan& plan) {
  return MmaLowering(kernel, plan).Run();
}

}  // namespace outboard::program
