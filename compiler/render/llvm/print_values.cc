// Values of a program: each instruction becomes the LLVM value of the same meaning.
#include <llvm/IR/IntrinsicsX86.h>

#include <algorithm>

#include "base/check.h"
#include "compiler/render/llvm/program_printer.h"

namespace outboard::render {

using llvm::Type;
using llvm::Value;
using program::Code;
using program::Grid;
using program::Instruction;
using program::Precision;

Value* ProgramPrinter::Splat(Value* value, int lanes) {
  if (lanes == 1 || value->getType()->isVectorTy()) return value;
  return b_.CreateVectorSplat(lanes, value);
}

Value* ProgramPrinter::Compute(ValueId n) {
  const Instruction& i = at(n);
  switch (i.code) {
    case Code::kConst: return alu_.Const(i.dtype, i.imm[0]);
    case Code::kVar: {
      const auto var = std::find(vars_.begin(), vars_.end(), i.imm[0]) - vars_.begin();
      return function_->getArg(static_cast<unsigned>(program_.buffer_count + var));
    }
    case Code::kSpecial:
      return i.imm[0] == static_cast<int64_t>(Grid::kBlock) ? task_ : b_.getInt64(0);
    case Code::kAlu: return Arithmetic(n);
    case Code::kCast: return alu_.Cast(Of(i.src[0]), at(i.src[0]).dtype, i.dtype);
    case Code::kBitcast: return Bitcast(n);
    case Code::kLanes: return Lanes(n);
    case Code::kLane:
      if (at(i.src[0]).lanes == 1) return Of(i.src[0]);
      return b_.CreateExtractElement(Of(i.src[0]), b_.getInt64(i.imm[0]));
    case Code::kLoad: return Load(n);
    case Code::kDot: return Dot(n);
    default: OB_CHECK(false && "no value"); return nullptr;
  }
}

Value* ProgramPrinter::Arithmetic(ValueId n) {
  const Instruction& i = at(n);
  const DType type = at(i.src.back()).dtype;
  std::vector<Value*> args;
  for (const ValueId s : i.src) args.push_back(Of(s));
  const bool with_product = i.imm[0] == static_cast<int64_t>(Precision::kWithProduct);
  if (i.op == Op::kAdd && with_product && IsFloat(type))
    return alu_.Round(alu_.Combine(Op::kAdd, type, args[0], args[1]), type);
  QuotientFacts known;
  if ((i.op == Op::kIDiv || i.op == Op::kMod) && type != DType::kU64) {
    known.divisor_positive = bounds_[i.src[1]].min > 0;
    known.dividend_not_negative = bounds_[i.src[0]].min >= 0;
  }
  return alu_.Alu(i.op, type, args, known);
}

std::optional<ProgramPrinter::Shuffle> ProgramPrinter::ShuffleOf(ValueId n) const {
  const Instruction& i = at(n);
  if (i.src.size() < 2) return std::nullopt;
  Shuffle out;
  for (const ValueId s : i.src) {
    const Instruction& lane = at(s);
    if (lane.code != Code::kLane || at(lane.src[0]).lanes == 1) return std::nullopt;
    const ValueId vector = lane.src[0];
    if (out.first < 0) out.first = vector;
    if (vector == out.first) {
      out.lanes.push_back(static_cast<int>(lane.imm[0]));
      continue;
    }
    if (out.second < 0) out.second = vector;
    if (vector != out.second || at(out.second).lanes != at(out.first).lanes) return std::nullopt;
    out.lanes.push_back(static_cast<int>(lane.imm[0]) + at(out.first).lanes);
  }
  return out;
}

Value* ProgramPrinter::Lanes(ValueId n) {
  const Instruction& i = at(n);
  if (i.src.size() == 1) return Splat(Of(i.src[0]), i.lanes);
  if (const auto shuffle = ShuffleOf(n)) {
    Value* const first = Of(shuffle->first);
    if (shuffle->second < 0) return b_.CreateShuffleVector(first, shuffle->lanes);
    return b_.CreateShuffleVector(first, Of(shuffle->second), shuffle->lanes);
  }
  std::vector<llvm::Constant*> constants;
  for (const ValueId s : i.src)
    if (auto* const constant = llvm::dyn_cast<llvm::Constant>(Of(s))) constants.push_back(constant);
  if (constants.size() == i.src.size()) return llvm::ConstantVector::get(constants);
  Value* out = llvm::PoisonValue::get(llvm::FixedVectorType::get(Of(i.src[0])->getType(), i.lanes));
  for (int lane = 0; lane < i.lanes; ++lane)
    out = b_.CreateInsertElement(out, Of(i.src[lane]), b_.getInt64(lane));
  return out;
}

// The bytes as they lie in memory; a vector's lanes one after the other.
Value* ProgramPrinter::Bitcast(ValueId n) {
  const Instruction& i = at(n);
  const DType from = at(i.src[0]).dtype;
  if (at(i.src[0]).lanes == i.lanes) return alu_.Bitcast(Of(i.src[0]), from, i.dtype);
  Type* type = MemoryType(b_.getContext(), i.dtype);
  if (i.lanes > 1) type = llvm::FixedVectorType::get(type, i.lanes);
  return alu_.FromMemory(b_.CreateBitCast(alu_.ToMemory(Of(i.src[0]), from), type), i.dtype);
}

Value* ProgramPrinter::Dot(ValueId n) {
  const Instruction& i = at(n);
  const auto id = i.lanes == 16  ? llvm::Intrinsic::x86_avx512bf16_dpbf16ps_512
                  : i.lanes == 8 ? llvm::Intrinsic::x86_avx512bf16_dpbf16ps_256
                                 : llvm::Intrinsic::x86_avx512bf16_dpbf16ps_128;
  Type* const pairs = llvm::FixedVectorType::get(b_.getBFloatTy(), 2 * i.lanes);
  const auto operand = [&](int s) { return b_.CreateBitCast(Of(i.src[s]), pairs); };
  return b_.CreateIntrinsic(id, {}, {Of(i.src[0]), operand(1), operand(2)});
}

}  // namespace outboard::render
