// Integers of 64 bits that fit in 32.
//
// A GPU adds and compares 64 bits in two steps, multiplies them in four and divides them in a
// hundred. So every i64 that cannot leave 32 bits, by the bounds of all that it is computed from,
// has a register of 32, and is extended where another instruction takes it as 64.
#include "compiler/render/ptx/ptx_printer.h"

namespace outboard::render {

bool PtxPrinter::IsSmall(ValueId n) const {
  return FitsIn32Bits(at(n), bounds_[static_cast<size_t>(n)]);
}

bool PtxPrinter::IsComputedSmall(ValueId n) const {
  return IsComputedIn32Bits(program_, bounds_, n);
}

PtxOperand PtxPrinter::SmallArithmetic(ValueId n, int lane) {
  const Instruction& i = at(n);
  absl::InlinedVector<PtxOperand, 3> args;
  for (const ValueId s : i.src) args.push_back(AsPrinted(s, lane));
  if (i.op == Op::kIDiv || i.op == Op::kMod)
    return Divide(i.op, args[0], args[1], DType::kI32, bounds_[static_cast<size_t>(i.src[0])],
                  bounds_[static_cast<size_t>(i.src[1])]);
  return Alu(i.op, DType::kI32, args);
}

PtxOperand PtxPrinter::Lane(ValueId n, int lane) {
  const PtxOperand& value = AsPrinted(n, lane);
  return IsSmall(n) ? Cast(value, DType::kI32, DType::kI64) : value;
}

PtxOperand PtxPrinter::Low(ValueId n, int lane) {
  const PtxOperand& value = AsPrinted(n, lane);
  return value.width == Width::k64 ? Cast(value, DType::kU64, DType::kU32) : value;
}

}  // namespace outboard::render
