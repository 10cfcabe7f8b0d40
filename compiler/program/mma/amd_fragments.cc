#include "compiler/program/mma/amd_fragments.h"

#include <algorithm>

namespace outboard::program {

namespace {
constexpr int64_t kSide = 16;
}

ValueId LoadAmdOperand(ProgramBuilder& b, MatrixUnit unit, const AmdOperand& operand, ValueId lane,
                       ValueId along, int64_t first_step) {
  const int64_t lanes = AmdOperandLanes(unit);
  const ValueId group = unit == MatrixUnit::kWmma ? b.Int(0) : b.Divide(lane, kSide);
  Instruction all{
      .code = Code::kLanes, .dtype = operand.dtype, .lanes = static_cast<int>(lanes)};
  if (operand.across) {
    for (int64_t e = 0; e < lanes; ++e) {
      const ValueId line = b.Plus(b.Times(group, lanes), b.Int(first_step + e));
      const ValueId chunk =
          operand.element(line, b.Modulo(line, 8), b.Divide(along, operand.chunk));
      all.src.push_back(b.Load(operand.memory, b.Plus(chunk, b.Modulo(along, operand.chunk))));
    }
    return b.Add(std::move(all));
  }
  // A thread has whole chunks, or several threads share one: said apart, so that it is seen that
  // all of its lanes are in the chunk.
  const int64_t piece = std::min(lanes, operand.chunk), sharers = operand.chunk / piece;
  for (int64_t e = 0; e < lanes; e += piece) {
    const ValueId number =
        b.Plus(b.Int((first_step + e) / operand.chunk), b.Divide(group, sharers));
    const ValueId chunk = operand.element(along, b.Modulo(lane, 8), number);
    const ValueId in_chunk = b.Times(b.Modulo(group, sharers), piece);
    const ValueId loaded =
        b.Add({.code = Code::kLoad,
               .dtype = operand.dtype,
               .lanes = static_cast<int>(piece),
               .src = {operand.memory, b.Plus(chunk, in_chunk)}});
    for (int64_t k = 0; k < piece; ++k)
      all.src.push_back(
          b.Add({.code = Code::kLane, .dtype = operand.dtype, .src = {loaded}, .imm = {k, 0, 0}}));
  }
  return b.Add(std::move(all));
}

ValueId FirstAmdRow(ProgramBuilder& b, MatrixUnit unit, ValueId lane) {
  const ValueId group = b.Divide(lane, kSide);
  return unit == MatrixUnit::kWmma ? group : b.Times(group, AmdSumLanes(unit));
}

}  // namespace outboard::program
