#include "compiler/render/llvm/alu.h"

#include <llvm/Analysis/VectorUtils.h>
#include <llvm/IR/Intrinsics.h>

#include <bit>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace outboard::render {

using llvm::Type;
using llvm::Value;
using llvm::Intrinsic::ID;

namespace {

// A constant other than -0.0, in every lane.
bool IsNotNegativeZero(Value* value) {
  auto* constant = llvm::dyn_cast<llvm::Constant>(value);
  if (constant != nullptr && constant->getType()->isVectorTy())
    constant = constant->getSplatValue();
  const auto* const number = llvm::dyn_cast_or_null<llvm::ConstantFP>(constant);
  return number != nullptr && !number->isNaN() && !number->isExactlyValue(-0.0);
}

// Whether LLVM may find that some lanes of the vector are zero: not where one number, not 0, is in
// all of them, nor where that number is known at run time alone.
bool MayHaveZeroLanes(Value* vector) {
  const Value* const splat = llvm::getSplatValue(vector);
  if (splat == nullptr) return true;
  const auto* const number = llvm::dyn_cast<llvm::ConstantFP>(splat);
  return number != nullptr && number->isZero();
}

Type* WithLanes(Type* scalar, Type* like) {
  if (auto* vector = llvm::dyn_cast<llvm::VectorType>(like))
    return llvm::VectorType::get(scalar, vector);
  return scalar;
}

}  // namespace

Type* RegisterType(llvm::LLVMContext& c, DType dtype) {
  if (IsBool(dtype)) return Type::getInt1Ty(c);
  if (dtype == DType::kF64) return Type::getDoubleTy(c);
  if (IsFloat(dtype)) return Type::getFloatTy(c);
  return Type::getIntNTy(c, 8 * ByteWidth(dtype));
}

Type* MemoryType(llvm::LLVMContext& c, DType dtype) {
  if (dtype == DType::kF64) return Type::getDoubleTy(c);
  if (dtype == DType::kF32) return Type::getFloatTy(c);
  return Type::getIntNTy(c, 8 * ByteWidth(dtype));
}

absl::Status AluEmitter::Supports(Op op, DType dtype) {
  if (IsAlu(op)) return absl::OkStatus();
  return absl::UnimplementedError(
      absl::StrCat("code for ", std::string(Name(op)), " of ", std::string(Name(dtype))));
}

Type* AluEmitter::LikeType(Value* like, Type* scalar) { return WithLanes(scalar, like->getType()); }

Value* AluEmitter::Splat(Value* like, uint64_t value) {
  return llvm::ConstantInt::get(like->getType(), value);
}

Value* AluEmitter::Const(DType dtype, int64_t bits) {
  Type* const type = RegisterType(b_.getContext(), dtype);
  if (IsFloat(dtype)) return llvm::ConstantFP::get(type, std::bit_cast<double>(bits));
  return llvm::ConstantInt::get(type, static_cast<uint64_t>(bits));
}

Value* AluEmitter::Max(Value* a, Value* b, DType type) {
  if (!IsFloat(type))
    return b_.CreateBinaryIntrinsic(IsSigned(type) ? llvm::Intrinsic::smax : llvm::Intrinsic::umax,
                                    a, b);
  if (IsNotNegativeZero(a)) std::swap(a, b);
  if (!IsNotNegativeZero(b)) return b_.CreateBinaryIntrinsic(llvm::Intrinsic::maximum, a, b);
  // Against such a constant (relu) a comparison does it: a NaN goes through, and of equals the
  // constant is taken.
  return b_.CreateSelect(b_.CreateFCmpUGT(a, b), a, b);
}

Value* AluEmitter::Divide(Op op, Value* a, Value* b, DType type, const QuotientFacts& known) {
  // Lane by lane, as processors do it. LLVM 19 takes a division by a vector SELECT apart arm by arm
  // (threadBinOpOverSelect), and counts an arm as undefined that has a 0 in a lane which is not
  // taken from it: (m ? x : 0) / (m ? x : 0), guarded as below, became m ? x : 0.
  if (const auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(b->getType());
      vector != nullptr && !llvm::isa<llvm::Constant>(b)) {
    Value* result = llvm::PoisonValue::get(a->getType());
    for (uint64_t lane = 0; lane < vector->getNumElements(); ++lane)
      result = b_.CreateInsertElement(result,
                                      Divide(op, b_.CreateExtractElement(a, lane),
                                             b_.CreateExtractElement(b, lane), type, known),
                                      lane);
    return result;
  }
  const bool divide = op == Op::kIDiv, is_signed = IsSigned(type);
  Value* const zero = Splat(a, 0);
  const auto plain = [&](Value* den, bool with_sign) {
    if (divide) return with_sign ? b_.CreateSDiv(a, den) : b_.CreateUDiv(a, den);
    return with_sign ? b_.CreateSRem(a, den) : b_.CreateURem(a, den);
  };
  if (known.divisor_positive) return plain(b, is_signed && !known.dividend_not_negative);
  Value* const one = Splat(a, 1);
  Value* const by_zero = b_.CreateICmpEQ(b, zero);
  Value* trap = by_zero;
  Value* by_minus_one = nullptr;
  if (is_signed) {
    by_minus_one = b_.CreateICmpEQ(b, llvm::Constant::getAllOnesValue(b->getType()));
    trap = b_.CreateOr(trap, by_minus_one);
  }
  Value* result = plain(b_.CreateSelect(trap, one, b), is_signed);
  if (is_signed)
    result = b_.CreateSelect(by_minus_one, divide ? b_.CreateSub(zero, a) : zero, result);
  return b_.CreateSelect(by_zero, divide ? zero : a, result);
}

Value* AluEmitter::Shift(Op op, Value* a, Value* b, DType type) {
  const unsigned bits = a->getType()->getScalarSizeInBits();
  Value* const wide = b_.CreateICmpUGE(b, Splat(b, bits));
  Value* const amount = b_.CreateSelect(wide, Splat(b, bits - 1), b);
  if (op == Op::kShr && IsSigned(type))
    return b_.CreateAShr(a, amount);  // width - 1 leaves the sign alone
  Value* const shifted = op == Op::kShl ? b_.CreateShl(a, amount) : b_.CreateLShr(a, amount);
  return b_.CreateSelect(wide, Splat(a, 0), shifted);
}

// Threefry-2x32, 20 rounds (Salmon and others, "Parallel random numbers: as easy as 1, 2, 3",
// 2011).
Value* AluEmitter::Threefry(Value* counter, Value* key) {
  static constexpr int kRotations[8] = {13, 15, 26, 6, 17, 29, 16, 24};
  Type* const i32 = LikeType(counter, b_.getInt32Ty());
  const auto low = [&](Value* v) { return b_.CreateTrunc(v, i32); };
  const auto high = [&](Value* v) { return b_.CreateTrunc(b_.CreateLShr(v, Splat(v, 32)), i32); };
  Value* keys[3] = {low(key), high(key), nullptr};
  keys[2] = b_.CreateXor(b_.CreateXor(keys[0], keys[1]), Splat(keys[0], 0x1BD11BDA));
  Value* x0 = b_.CreateAdd(low(counter), keys[0]);
  Value* x1 = b_.CreateAdd(high(counter), keys[1]);
  for (int round = 0; round < 20; ++round) {
    x0 = b_.CreateAdd(x0, x1);
    const int r = kRotations[round % 8];
    // What LLVM makes of two shifts and an `or`, too, at half the cost of compiling the kernel.
    x1 = b_.CreateXor(
        b_.CreateIntrinsic(llvm::Intrinsic::fshl, {x1->getType()}, {x1, x1, Splat(x1, r)}), x0);
    if (round % 4 == 3) {
      const int s = round / 4 + 1;
      x0 = b_.CreateAdd(x0, keys[s % 3]);
      x1 = b_.CreateAdd(b_.CreateAdd(x1, keys[(s + 1) % 3]), Splat(x1, s));
    }
  }
  Value* const wide1 = b_.CreateZExt(x1, counter->getType());
  return b_.CreateOr(b_.CreateShl(wide1, Splat(wide1, 32)), b_.CreateZExt(x0, counter->getType()));
}

Value* AluEmitter::Alu(Op op, DType type, std::span<Value* const> args,
                       const QuotientFacts& known) {
  Value* const a = args[0];
  Value* const b = args.size() > 1 ? args[1] : nullptr;
  const bool is_float = IsFloat(type), is_signed = IsSigned(type);
  const auto rounded = [&](Value* v) { return Round(v, type); };
  switch (op) {
    case Op::kNeg: return is_float ? b_.CreateFNeg(a) : b_.CreateSub(Splat(a, 0), a);
    // Of f64 only, in programs that were not made by CompileKernel: there all are arithmetic by now
    // (compiler/kernel/decompose_math.h, decompose_math_f64.h).
    case Op::kExp: return b_.CreateUnaryIntrinsic(llvm::Intrinsic::exp, a);
    case Op::kExp2: {
      // As a builtin of an integer it would become ldexp, which kernels may not call.
      llvm::CallInst* const call = b_.CreateUnaryIntrinsic(llvm::Intrinsic::exp2, a);
      call->addFnAttr(llvm::Attribute::NoBuiltin);
      return call;
    }
    case Op::kLog: return b_.CreateUnaryIntrinsic(llvm::Intrinsic::log, a);
    case Op::kLog2: return b_.CreateUnaryIntrinsic(llvm::Intrinsic::log2, a);
    case Op::kSin: return b_.CreateUnaryIntrinsic(llvm::Intrinsic::sin, a);
    case Op::kCos: return b_.CreateUnaryIntrinsic(llvm::Intrinsic::cos, a);
    case Op::kTanh: return b_.CreateUnaryIntrinsic(llvm::Intrinsic::tanh, a);
    case Op::kSqrt: return rounded(b_.CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, a));
    case Op::kTrunc: return b_.CreateUnaryIntrinsic(llvm::Intrinsic::trunc, a);
    case Op::kAdd: return is_float ? rounded(ExactSum(a, b)) : b_.CreateAdd(a, b);
    case Op::kMul: return is_float ? rounded(b_.CreateFMul(a, b)) : b_.CreateMul(a, b);
    case Op::kFDiv: return rounded(Quotient(a, b));
    case Op::kIDiv:
    case Op::kMod: return Divide(op, a, b, type, known);
    case Op::kMax: return Max(a, b, type);
    case Op::kCmpLt:
      if (is_float) return b_.CreateFCmpOLT(a, b);
      return is_signed ? b_.CreateICmpSLT(a, b) : b_.CreateICmpULT(a, b);
    case Op::kCmpNe: return is_float ? b_.CreateFCmpUNE(a, b) : b_.CreateICmpNE(a, b);
    case Op::kCmpEq: return is_float ? b_.CreateFCmpOEQ(a, b) : b_.CreateICmpEQ(a, b);
    case Op::kAnd: return b_.CreateAnd(a, b);
    case Op::kOr: return b_.CreateOr(a, b);
    case Op::kXor: return b_.CreateXor(a, b);
    case Op::kShl:
    case Op::kShr: return Shift(op, a, b, type);
    case Op::kThreefry: return Threefry(a, b);
    case Op::kWhere: return b_.CreateSelect(a, b, args[2]);
    case Op::kMulAcc:
      return b_.CreateIntrinsic(llvm::Intrinsic::fma, {a->getType()}, {a, b, args[2]});
    default: OB_CHECK(false && "not arithmetic"); return nullptr;
  }
}

Value* AluEmitter::ExactSum(Value* a, Value* b) {
  llvm::IRBuilder<>::FastMathFlagGuard guard(b_);
  b_.clearFastMathFlags();
  return b_.CreateFAdd(a, b);
}

// LLVM 19 takes 0/0 for 0 in a vector's lanes that it knows to be zero in both operands, as those
// that a load leaves out (TargetLowering::SimplifyDemandedVectorElts). A mask that makes zeros of
// these lanes is dropped then, and they are NaN. Behind a fence it knows nothing of the divisor.
Value* AluEmitter::Quotient(Value* a, Value* b) {
  if (a->getType()->isVectorTy() && MayHaveZeroLanes(b))
    b = b_.CreateArithmeticFence(b, b->getType());
  return b_.CreateFDiv(a, b);
}

Value* AluEmitter::Combine(Op op, DType dtype, Value* a, Value* b) {
  switch (op) {
    case Op::kAdd: return IsFloat(dtype) ? b_.CreateFAdd(a, b) : b_.CreateAdd(a, b);
    case Op::kMul: return IsFloat(dtype) ? b_.CreateFMul(a, b) : b_.CreateMul(a, b);
    default: return Max(a, b, dtype);
  }
}

Value* AluEmitter::Identity(Op op, DType dtype, Type* type) {
  if (IsFloat(dtype)) {
    if (op == Op::kMax) return llvm::ConstantFP::getInfinity(type, /*Negative=*/true);
    return llvm::ConstantFP::get(type, op == Op::kAdd ? 0.0 : 1.0);
  }
  if (op == Op::kMax)
    return llvm::ConstantInt::get(type, static_cast<uint64_t>(IntMin(dtype)), /*IsSigned=*/true);
  return llvm::ConstantInt::get(type, op == Op::kAdd ? 0 : 1);
}

}  // namespace outboard::render
