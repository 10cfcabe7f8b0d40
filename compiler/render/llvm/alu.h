// Emits the operations as LLVM instructions; the same code serves for one element and for a vector
// of them.
//
// Values in registers: integers in their own width, bool as i1, f32 and f64 as such, and every
// smaller float as the f32 of the same value: it is widened when loaded, each operation is done in
// f32 and rounded back to the type's values. No instruction carries a flag whose condition input
// could violate (nsw, nuw, exact, inbounds, nnan ...); `contract` alone is set, on products and on
// the sums of reductions, so that these two may be rounded once. Elementwise sums are never fused:
// a value that two kernels compute has the same bits in both (the gradient of a maximum compares
// them).
#pragma once

#include <llvm/IR/IRBuilder.h>

#include <span>

#include "absl/status/status.h"
#include "compiler/ir/dtype.h"
#include "compiler/ir/op.h"

namespace outboard::render {

llvm::Type* RegisterType(llvm::LLVMContext& context, DType dtype);
llvm::Type* MemoryType(llvm::LLVMContext& context, DType dtype);

// What is known of the operands of IDIV and MOD; where nothing is, cases that the machine's
// division traps on are left out by selects.
struct QuotientFacts {
  bool divisor_positive = false;
  bool dividend_not_negative = false;
};

class AluEmitter {
 public:
  explicit AluEmitter(llvm::IRBuilder<>& builder) : b_(builder) {}

  // Errors: UNIMPLEMENTED if `op` is arithmetic that this class cannot emit.
  static absl::Status Supports(Op op, DType dtype);

  // `bits` as of Op::kConst.
  llvm::Value* Const(DType dtype, int64_t bits);
  // `args` have equal lanes. `type` is that of the operands, of the last one for WHERE.
  llvm::Value* Alu(Op op, DType type, std::span<llvm::Value* const> args,
                   const QuotientFacts& known = {});
  llvm::Value* Cast(llvm::Value* value, DType from, DType to);
  llvm::Value* Bitcast(llvm::Value* value, DType from, DType to);
  llvm::Value* FromMemory(llvm::Value* value, DType dtype);
  llvm::Value* ToMemory(llvm::Value* value, DType dtype);
  // One step of a reduction, without rounding to small floats.
  llvm::Value* Combine(Op op, DType dtype, llvm::Value* a, llvm::Value* b);
  llvm::Value* Identity(Op op, DType dtype, llvm::Type* type);
  // Rounds a float in a register to the values of `dtype`.
  llvm::Value* Round(llvm::Value* value, DType dtype);

 private:
  llvm::Value* Splat(llvm::Value* like, uint64_t value);
  llvm::Type* LikeType(llvm::Value* like, llvm::Type* scalar);
  llvm::Value* Divide(Op op, llvm::Value* a, llvm::Value* b, DType type,
                      const QuotientFacts& known);
  llvm::Value* Shift(Op op, llvm::Value* a, llvm::Value* b, DType type);
  llvm::Value* Max(llvm::Value* a, llvm::Value* b, DType type);
  llvm::Value* ExactSum(llvm::Value* a, llvm::Value* b);
  llvm::Value* Quotient(llvm::Value* a, llvm::Value* b);
  llvm::Value* Threefry(llvm::Value* counter, llvm::Value* key);
  llvm::Value* RoundBFloat(llvm::Value* value);
  llvm::Value* NarrowToOdd(llvm::Value* value);
  llvm::Value* PackFp8(llvm::Value* value, DType dtype);
  llvm::Value* UnpackFp8(llvm::Value* bits, DType dtype);

  llvm::IRBuilder<>& b_;
};

}  // namespace outboard::render
