#include "compiler/program/hopper/tf32_stage.h"

#include <array>
#include <utility>

#include "compiler/program/hopper/two_tf32.h"
#include "compiler/target.h"

namespace outboard::program {
namespace {

constexpr int64_t kTogether = 4;  // f32 of 16 bytes, which a swizzle keeps together
constexpr int64_t kSteps = 32;    // of a stage: a row of 128 bytes
constexpr int64_t kPiece = kSteps * kSteps;
constexpr int64_t kPatternRows = 8;  // after which a swizzle repeats

ValueId LoadFour(ProgramBuilder& b, ValueId memory, ValueId index) {
  return b.Add({.code = Code::kLoad,
                .dtype = DType::kF32,
                .lanes = kTogether,
                .src = {memory, index}});
}
void StoreFour(ProgramBuilder& b, ValueId memory, ValueId index, ValueId four) {
  b.Add({.code = Code::kStore, .lanes = kTogether, .src = {memory, index, four}});
}
ValueId Four(ProgramBuilder& b, const std::array<ValueId, kTogether>& of) {
  Instruction lanes{.code = Code::kLanes, .dtype = DType::kF32, .lanes = kTogether};
  lanes.src.assign(of.begin(), of.end());
  return b.Add(std::move(lanes));
}
ValueId LaneOf(ProgramBuilder& b, ValueId vector, int64_t lane) {
  return b.Add({.code = Code::kLane,
                .dtype = b.at(vector).dtype,
                .src = {vector},
                .imm = {lane, 0, 0}});
}
ValueId Bit(ProgramBuilder& b, ValueId number, int bit) {
  return b.Modulo(b.Divide(number, int64_t{1} << bit), 2);
}
ValueId Not(ProgramBuilder& b, ValueId bit) { return b.Plus(b.Int(1), b.Times(bit, -1)); }

// Where the swizzle puts the 16 bytes number `sixteen` of a row, of 8; `row` is its number in a
// pattern. SwizzledPlace says the same of elements; here it is computed once, outside of all loops.
ValueId Swizzled(ProgramBuilder& b, ValueId sixteen, ValueId row) {
  return b.Alu(Op::kAnd, DType::kI64,
               {b.Alu(Op::kXor, DType::kI64, {sixteen, row}), b.Int(kPatternRows - 1)});
}

// Columns that are stored along k keep their places; low parts have the same, so that nobody asks
// where the swizzle has put a number.
void MakeLowParts(ProgramBuilder& b, const StageOfF32& stage, ValueId low, int64_t columns,
                  ValueId thread) {
  constexpr int64_t kAhead = 2;  // loads that a thread begins before it stores
  constexpr int64_t kEach = kPartMakers * kTogether;
  const ValueId maker = b.Plus(thread, b.Int(kPartMakers - kWarpgroupThreads));
  const ValueId first = b.Plus(stage.first, b.Times(maker, kTogether));
  for (int64_t e = 0; e < columns * kSteps; e += kAhead * kEach) {
    std::array<ValueId, kAhead> lows;
    for (int64_t i = 0; i < kAhead; ++i)
      lows[i] = LowOfCut(b, LoadFour(b, stage.memory, b.Plus(first, b.Int(e + i * kEach))));
    for (int64_t i = 0; i < kAhead; ++i)
      StoreFour(b, low, b.Plus(first, b.Int(e + i * kEach)), lows[i]);
  }
}

// A thread's square of a quarter: 4 columns from 4 * `across` on, of 4 steps from 4 * `along` on.
struct Square {
  ValueId across = -1, along = -1;
};
// Of 16 threads. Eight consecutive ones have all pairs of `across` and the last bit of `along`, and
// all pairs of `along` and the last bit of `across`: what the swizzle of loads, and of stores,
// makes different banks of.
Square SquareOf(ProgramBuilder& b, ValueId thread) {
  const ValueId high = b.Modulo(b.Plus(Bit(b, thread, 1), Bit(b, thread, 3)), 2);
  return {.across = b.Modulo(thread, 4), .along = b.Plus(b.Times(high, 2), Bit(b, thread, 2))};
}

void TurnPieces(ProgramBuilder& b, const StageOfF32& stage, ValueId low, int64_t columns,
                ValueId thread) {
  constexpr int64_t kWarps = kPartMakers / kWarpThreads;
  const ValueId warp = b.Modulo(b.Divide(thread, kWarpThreads), kWarps);
  const ValueId lane = b.Modulo(thread, kWarpThreads);
  const ValueId upper = b.Divide(lane, kWarpThreads / 2);  // columns: 0 to 15, or 16 to 31
  const Square square = SquareOf(b, lane);
  for (int64_t piece = 0; piece < columns / kSteps; piece += kWarps)
    for (const bool on_diagonal : {true, false}) {
      const ValueId later = on_diagonal ? upper : Not(b, upper);  // steps: 0 to 15, or 16 to 31
      const ValueId across = b.Plus(b.Times(upper, 4), square.across);
      const ValueId along = b.Plus(b.Times(later, 4), square.along);
      // Of 16 bytes number `sixteen` of row 4 * `four` + i.
      const auto place = [&](ValueId four, int64_t i, ValueId sixteen) {
        const ValueId row = b.Plus(b.Times(b.Modulo(four, 2), 4), b.Int(i));
        const ValueId in_piece =
            b.Plus(b.Times(b.Plus(b.Times(four, 4), b.Int(i)), kSteps),
                   b.Times(Swizzled(b, sixteen, row), kTogether));
        return b.Plus(b.Plus(stage.first, b.Plus(b.Times(warp, kPiece), b.Int(piece * kPiece))),
                      in_piece);
      };
      std::array<ValueId, kTogether> rows;
      for (int64_t i = 0; i < kTogether; ++i)
        rows[i] = LoadFour(b, stage.memory, place(along, i, across));
      b.Do(Code::kWarpSync);  // all have loaded what others overwrite
      for (int64_t j = 0; j < kTogether; ++j) {
        std::array<ValueId, kTogether> steps;
        for (int64_t i = 0; i < kTogether; ++i) steps[i] = LaneOf(b, rows[i], j);
        const ValueId column = Four(b, steps);
        StoreFour(b, stage.memory, place(across, j, along), column);
        if (low >= 0) StoreFour(b, low, place(across, j, along), LowOfCut(b, column));
      }
    }
}

// What a thread holds of A for one product, WgmmaOfA's four numbers: by LDMATRIX, of four matrices
// of 8 rows of 16 bytes.
ValueId LoadAlongSteps(ProgramBuilder& b, const StageOfF32& stage, ValueId consumer, ValueId thread,
                       int64_t product) {
  const ValueId in_warp = b.Modulo(thread, kWarpThreads);
  const ValueId row = b.Plus(
      b.Plus(b.Times(consumer, kWgmmaRows),
             b.Times(b.Divide(b.Modulo(thread, kWarpgroupThreads), kWarpThreads), 16)),
      b.Modulo(in_warp, 16));
  const ValueId first = b.Plus(b.Plus(stage.first, b.Times(row, kSteps)),
                               b.Times(b.Divide(in_warp, 16), kTogether));
  constexpr int64_t kSwizzled = 2;
  return b.Add({.code = Code::kLdmatrix,
                .dtype = DType::kF32,
                .lanes = kWgmmaRegistersOfA,
                .src = {stage.memory, b.Plus(first, b.Int(product * 2 * kTogether))},
                .imm = {kSwizzled, 0, 0}});
}

// The same number by number. A warp's 8 rows and 4 steps at once would meet half of the banks,
// twice: threads of odd steps load their later step first, and exchange what they have.
ValueId LoadAcrossSteps(ProgramBuilder& b, const StageOfF32& stage, ValueId consumer,
                        ValueId thread, int64_t product) {
  const ValueId warp = b.Divide(b.Modulo(thread, kWarpgroupThreads), kWarpThreads);
  const ValueId in_warp = b.Modulo(thread, kWarpThreads);
  const ValueId row = b.Divide(in_warp, 4), step = b.Modulo(in_warp, 4);
  const ValueId odd = b.Modulo(step, 2);
  const ValueId is_odd = b.Alu(Op::kCmpEq, DType::kBool, {odd, b.Int(1)});
  // Two warps' rows are a piece of 32.
  const ValueId piece = b.Plus(b.Times(consumer, 2), b.Divide(warp, 2));
  const ValueId first = b.Plus(b.Plus(stage.first, b.Times(piece, kPiece)), b.Modulo(row, 4));
  const ValueId sixteen = b.Plus(b.Times(b.Modulo(warp, 2), 4), b.Divide(row, 4));
  std::array<std::array<ValueId, 2>, 2> loaded;  // [first, second load][row, row + 8]
  for (int64_t second = 0; second < 2; ++second)
    for (int64_t eight = 0; eight < 2; ++eight) {
      const ValueId k = b.Plus(b.Times(second == 0 ? odd : Not(b, odd), 4), step);
      const ValueId place =
          b.Plus(b.Times(k, kSteps),
                 b.Times(Swizzled(b, b.Plus(sixteen, b.Int(2 * eight)), k), kTogether));
      loaded[second][eight] = b.Load(
          stage.memory, b.Plus(b.Plus(first, place), b.Int(product * kPatternRows * kSteps)));
    }
  std::array<ValueId, kWgmmaRegistersOfA> four;
  for (int64_t later = 0; later < 2; ++later)
    for (int64_t eight = 0; eight < 2; ++eight)
      four[2 * later + eight] = b.Alu(Op::kWhere, DType::kF32,
                                      {is_odd, loaded[1 - later][eight], loaded[later][eight]});
  return Four(b, four);
}

}  // namespace

void MakePartsOfB(ProgramBuilder& b, const StageOfF32& stage, ValueId low, int64_t columns,
                  ValueId thread) {
  return stage.along_rows ? TurnPieces(b, stage, low, columns, thread)
                          : MakeLowParts(b, stage, low, columns, thread);
}

void LoadStageOfA(ProgramBuilder& b, const StageOfF32& stage, ValueId consumer, ValueId thread,
                  bool in_parts, ValueId registers) {
  for (int64_t product = 0; product < kProductsOfStage; ++product) {
    const ValueId four = stage.along_rows ? LoadAcrossSteps(b, stage, consumer, thread, product)
                                          : LoadAlongSteps(b, stage, consumer, thread, product);
    const TwoTf32 two = in_parts ? SplitRounded(b, four) : TwoTf32{.high = four};
    const auto bits = [&](ValueId of) {  // WGMMA's registers are integers
      return b.Add({.code = Code::kBitcast,
                    .dtype = DType::kU32,
                    .lanes = kWgmmaRegistersOfA,
                    .src = {of}});
    };
    const ValueId low = in_parts ? bits(two.low) : ValueId{-1}, high = bits(two.high);
    for (int64_t i = 0; i < kWgmmaRegistersOfA; ++i) {
      const int64_t place = product * kWgmmaRegistersOfA + i;
      if (in_parts) b.Store(registers, b.Int(place), LaneOf(b, low, i));
      b.Store(registers, b.Int((in_parts ? kStageRegisters : 0) + place), LaneOf(b, high, i));
    }
  }
}

}  // namespace outboard::program
