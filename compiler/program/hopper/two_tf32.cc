#include "compiler/program/hopper/two_tf32.h"

#include "compiler/target.h"

namespace outboard::program {
namespace {

constexpr int64_t kSignOff = 0x7fffffff, kInfinity = 0x7f800000;
constexpr int64_t kRoundsToInfinity = 0x7f7ff000;                // as what is larger does
constexpr int64_t kHalfOfLast = 0x1000, kTf32Bits = 0xffffe000;  // of TF32's last digit

ValueId ConstU32(ProgramBuilder& b, int64_t value) {
  return b.Add({.code = Code::kConst, .dtype = DType::kU32, .imm = {value, 0, 0}});
}
ValueId Bitcast(ProgramBuilder& b, ValueId x, DType dtype) {
  return b.Add({.code = Code::kBitcast, .dtype = dtype, .lanes = b.at(x).lanes, .src = {x}});
}
ValueId With(ProgramBuilder& b, Op op, ValueId bits, int64_t value) {
  return b.Alu(op, DType::kU32, {bits, b.Splat(ConstU32(b, value), b.at(bits).lanes)});
}
ValueId Minus(ProgramBuilder& b, ValueId x, ValueId y) {
  return b.Alu(Op::kAdd, DType::kF32, {x, b.Alu(Op::kNeg, DType::kF32, {y})});
}
ValueId Least(ProgramBuilder& b, ValueId x, int64_t most) {
  return b.Times(b.Alu(Op::kMax, DType::kI64, {b.Times(x, -1), b.Int(-most)}), -1);
}

// An element of an operand; `row` is one of A, or a column of B.
ValueId Element(ProgramBuilder& b, const HopperShape& shape, const HopperOperand& operand,
                ValueId batch, ValueId row, ValueId k) {
  const int64_t width = ByteWidth(shape.dtype);
  const std::vector<ValueId> at = CoordinatesOf(b, shape, operand, batch, row, k);
  ValueId index = at[0];
  for (size_t d = 1; d < at.size(); ++d)
    index = b.Plus(index, b.Times(at[d], operand.view.strides[d - 1] / width));
  return b.Load(b.Buffer(shape.dtype, operand.view.slot, operand.elements), index);
}

}  // namespace

TwoTf32 SplitRounded(ProgramBuilder& b, ValueId four) {
  const ValueId more = With(b, Op::kAdd, Bitcast(b, four, DType::kU32), kHalfOfLast);
  const ValueId high = Bitcast(b, With(b, Op::kAnd, more, kTf32Bits), DType::kF32);
  return {.low = Minus(b, four, high), .high = high};
}

ValueId LowOfCut(ProgramBuilder& b, ValueId four) {
  const ValueId bits = Bitcast(b, four, DType::kU32);
  return Minus(b, four, Bitcast(b, With(b, Op::kAnd, bits, kTf32Bits), DType::kF32));
}

ValueId RoundedToTf32(ProgramBuilder& b, ValueId four) {
  const ValueId bits = Bitcast(b, four, DType::kU32);
  const auto all = [&](int64_t value) { return b.Splat(ConstU32(b, value), b.at(four).lanes); };
  const ValueId size = b.Alu(Op::kAnd, DType::kU32, {bits, all(kSignOff)});
  const ValueId finite = b.Alu(Op::kCmpLt, DType::kBool, {size, all(kRoundsToInfinity)});
  const ValueId more = b.Alu(Op::kAdd, DType::kU32, {bits, all(kHalfOfLast)});
  return Bitcast(b, b.Alu(Op::kWhere, DType::kU32, {finite, more, bits}), DType::kF32);
}

ValueId IsInfiniteOrNan(ProgramBuilder& b, ValueId x) {
  const ValueId size =
      b.Alu(Op::kAnd, DType::kU32, {Bitcast(b, x, DType::kU32), ConstU32(b, kSignOff)});
  const ValueId finite = b.Alu(Op::kCmpLt, DType::kBool, {size, ConstU32(b, kInfinity)});
  return b.Alu(Op::kCmpEq, DType::kBool,
               {finite, b.Add({.code = Code::kConst, .dtype = DType::kBool, .imm = {0, 0, 0}})});
}

void ComputeAgain(ProgramBuilder& b, const HopperShape& shape, ValueId thread,
                  const SumTile& tile) {
  const auto size_of = [&](ValueId sum) {
    return With(b, Op::kAnd, Bitcast(b, sum, DType::kU32), kSignOff);
  };
  const auto if_infinite = [&](ValueId size) {
    return b.If(b.Less(ConstU32(b, kInfinity - 1), size));
  };
  const int64_t elements = tile.columns / 2;
  ValueId largest = size_of(b.Load(tile.sums, b.Int(0)));
  for (int64_t e = 1; e < elements; ++e)
    largest = b.Alu(Op::kMax, DType::kU32, {largest, size_of(b.Load(tile.sums, b.Int(e)))});
  const ValueId any = if_infinite(largest);
  const ValueId element = b.Loop(elements);
  const ValueId again = if_infinite(size_of(b.Load(tile.sums, element)));
  // As WgmmaElement. Beyond the matrices there are zeros, which an infinity makes NaN: such sums
  // are those of the last row or column here, and are not stored.
  const ValueId in_group = b.Modulo(thread, kWarpgroupThreads);
  const ValueId in_warp = b.Modulo(in_group, kWarpThreads);
  const ValueId row =
      b.Plus(b.Plus(b.Plus(tile.first.row, b.Times(tile.consumer, kWgmmaRows)),
                    b.Times(b.Divide(in_group, kWarpThreads), 16)),
             b.Plus(b.Divide(in_warp, 4), b.Times(b.Modulo(b.Divide(element, 2), 2), 8)));
  const ValueId column = b.Plus(b.Plus(tile.first.column, b.Times(b.Divide(element, 4), 8)),
                                b.Plus(b.Times(b.Modulo(in_warp, 4), 2), b.Modulo(element, 2)));
  const ValueId total = b.Alloc(Space::kPrivate, DType::kF32, 1);
  b.Store(total, b.Int(0), b.Const(DType::kF32, 0));
  for (const HopperAddend& addend : shape.addends) {
    const ValueId k = b.Loop(addend.k);
    const ValueId product =
        b.Alu(Op::kMul, DType::kF32,
              {Element(b, shape, addend.a, tile.first.batch, Least(b, row, shape.m - 1), k),
               Element(b, shape, addend.b, tile.first.batch, Least(b, column, shape.n - 1), k)});
    b.Store(total, b.Int(0),
            b.Add({.code = Code::kAlu,
                   .op = Op::kAdd,
                   .dtype = DType::kF32,
                   .src = {b.Load(total, b.Int(0)), product},
                   .imm = {static_cast<int64_t>(Precision::kWithProduct), 0, 0}}));
    b.End(k);
  }
  b.Store(tile.sums, element, b.Load(total, b.Int(0)));
  b.EndIf(again);
  b.End(element);
  b.EndIf(any);
}

}  // namespace outboard::program
