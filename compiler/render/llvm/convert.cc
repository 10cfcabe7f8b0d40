// Conversions: between types, and between registers and memory. Small floats are done with integer
// code where the machine's own instruction differs (bf16 conversion flushes subnormals) or is
// missing (fp8).
#include <llvm/IR/Intrinsics.h>

#include "base/check.h"
#include "compiler/render/llvm/alu.h"

namespace outboard::render {

using llvm::Type;
using llvm::Value;

namespace {
bool IsSmallFloat(DType t) { return IsFloat(t) && t != DType::kF32 && t != DType::kF64; }
}  // namespace

// The f32 nearest to zero's side of an f64, its last bit set where anything was cut off. Rounding
// that to a smaller type gives what rounding the f64 at once would: "round to odd" (Boldo and
// Melquiond, 2005).
Value* AluEmitter::NarrowToOdd(Value* value) {
  Type* const f32 = LikeType(value, b_.getFloatTy());
  Type* const i32 = LikeType(value, b_.getInt32Ty());
  Value* const nearest = b_.CreateFPTrunc(value, f32);
  Value* const back = b_.CreateFPExt(nearest, value->getType());
  Value* const inexact = b_.CreateFCmpONE(back, value);
  const auto magnitude = [&](Value* v) {
    return b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, v);
  };
  Value* const away = b_.CreateFCmpOGT(magnitude(back), magnitude(value));
  Value* bits = b_.CreateBitCast(nearest, i32);
  bits = b_.CreateSub(bits, b_.CreateZExt(away, i32));
  bits = b_.CreateOr(bits, b_.CreateZExt(inexact, i32));
  return b_.CreateBitCast(bits, f32);
}

Value* AluEmitter::RoundBFloat(Value* value) {
  Type* const i32 = LikeType(value, b_.getInt32Ty());
  Value* const bits = b_.CreateBitCast(value, i32);
  Value* const last = b_.CreateAnd(b_.CreateLShr(bits, Splat(bits, 16)), Splat(bits, 1));
  Value* const sum = b_.CreateAdd(bits, b_.CreateAdd(last, Splat(bits, 0x7fff)));
  Value* const kept = b_.CreateAnd(sum, Splat(bits, 0xffff0000u));
  Value* const quiet = Splat(bits, 0x7fc00000u);
  return b_.CreateBitCast(b_.CreateSelect(b_.CreateFCmpUNO(value, value), quiet, kept),
                          value->getType());
}

// The bits, in the low byte of an i32, of the fp8 number nearest to an f32.
Value* AluEmitter::PackFp8(Value* value, DType dtype) {
  const bool e4m3 = dtype == DType::kF8E4M3;
  const int mantissa = e4m3 ? 3 : 2, bias = e4m3 ? 7 : 15;
  Type* const i32 = LikeType(value, b_.getInt32Ty());
  Value* const bits = b_.CreateBitCast(value, i32);
  Value* const sign = b_.CreateAnd(b_.CreateLShr(bits, Splat(bits, 24)), Splat(bits, 0x80));
  Value* const magnitude_bits = b_.CreateAnd(bits, Splat(bits, 0x7fffffff));
  // Normal numbers: cut the mantissa, to even, and move the bias of the exponent.
  const int cut = 23 - mantissa;
  Value* const last = b_.CreateAnd(b_.CreateLShr(magnitude_bits, Splat(bits, cut)), Splat(bits, 1));
  Value* const rounded =
      b_.CreateAdd(magnitude_bits, b_.CreateAdd(last, Splat(bits, (1u << (cut - 1)) - 1)));
  Value* const normal =
      b_.CreateSub(b_.CreateLShr(rounded, Splat(bits, cut)), Splat(bits, (127 - bias) << mantissa));
  // Subnormal ones: adding a number whose last place is their step lets the addition round.
  const unsigned magic = static_cast<unsigned>(127 + 1 - bias + cut) << 23;
  Value* const magnitude = b_.CreateBitCast(magnitude_bits, value->getType());
  Value* const shifter = b_.CreateBitCast(Splat(bits, magic), value->getType());
  llvm::IRBuilder<>::FastMathFlagGuard guard(b_);
  b_.clearFastMathFlags();
  Value* const sum = b_.CreateBitCast(b_.CreateFAdd(magnitude, shifter), i32);
  Value* const subnormal = b_.CreateSub(sum, Splat(bits, magic));
  Value* const is_small =
      b_.CreateICmpULT(magnitude_bits, Splat(bits, static_cast<unsigned>(127 + 1 - bias) << 23));
  Value* const finite = b_.CreateSelect(is_small, subnormal, normal);
  // Too large: infinity, or the largest number where there is none.
  const unsigned over = e4m3 ? 0x7e : 0x7c;
  Value* const capped =
      b_.CreateSelect(b_.CreateICmpUGT(finite, Splat(bits, over)), Splat(bits, over), finite);
  Value* const is_nan = b_.CreateFCmpUNO(value, value);
  return b_.CreateSelect(is_nan, Splat(bits, e4m3 ? 0x7f : 0x7e), b_.CreateOr(sign, capped));
}

Value* AluEmitter::UnpackFp8(Value* bits, DType dtype) {
  const bool e4m3 = dtype == DType::kF8E4M3;
  const int mantissa = e4m3 ? 3 : 2, bias = e4m3 ? 7 : 15;
  Type* const f32 = LikeType(bits, b_.getFloatTy());
  Value* const sign = b_.CreateShl(b_.CreateAnd(bits, Splat(bits, 0x80)), Splat(bits, 24));
  Value* const magnitude = b_.CreateAnd(bits, Splat(bits, 0x7f));
  Value* const normal = b_.CreateAdd(b_.CreateShl(magnitude, Splat(bits, 23 - mantissa)),
                                     Splat(bits, static_cast<unsigned>(127 - bias) << 23));
  // Subnormal: the integer times its step.
  Value* const step = llvm::ConstantFP::get(f32, std::ldexp(1.0, 1 - bias - mantissa));
  Value* const subnormal =
      b_.CreateBitCast(b_.CreateFMul(b_.CreateUIToFP(magnitude, f32), step), bits->getType());
  Value* out =
      b_.CreateSelect(b_.CreateICmpULT(magnitude, Splat(bits, 1u << mantissa)), subnormal, normal);
  Value* const nan = Splat(bits, 0x7fc00000);
  if (e4m3) {
    out = b_.CreateSelect(b_.CreateICmpEQ(magnitude, Splat(bits, 0x7f)), nan, out);
  } else {
    out = b_.CreateSelect(b_.CreateICmpEQ(magnitude, Splat(bits, 0x7c)), Splat(bits, 0x7f800000),
                          out);
    out = b_.CreateSelect(b_.CreateICmpUGT(magnitude, Splat(bits, 0x7c)), nan, out);
  }
  return b_.CreateBitCast(b_.CreateOr(out, sign), f32);
}

Value* AluEmitter::Round(Value* value, DType dtype) {
  switch (dtype) {
    case DType::kF16: {
      Type* const half = LikeType(value, b_.getHalfTy());
      return b_.CreateFPExt(b_.CreateFPTrunc(value, half), value->getType());
    }
    case DType::kBF16: return RoundBFloat(value);
    case DType::kF8E4M3:
    case DType::kF8E5M2: return UnpackFp8(PackFp8(value, dtype), dtype);
    default: return value;
  }
}

Value* AluEmitter::FromMemory(Value* value, DType dtype) {
  Type* const i32 = LikeType(value, b_.getInt32Ty());
  Type* const f32 = LikeType(value, b_.getFloatTy());
  switch (dtype) {
    case DType::kBool: return b_.CreateICmpNE(value, Splat(value, 0));
    case DType::kF16:
      return b_.CreateFPExt(b_.CreateBitCast(value, LikeType(value, b_.getHalfTy())), f32);
    case DType::kBF16: return b_.CreateBitCast(b_.CreateShl(b_.CreateZExt(value, i32), 16), f32);
    case DType::kF8E4M3:
    case DType::kF8E5M2: return UnpackFp8(b_.CreateZExt(value, i32), dtype);
    default: return value;
  }
}

Value* AluEmitter::ToMemory(Value* value, DType dtype) {
  Type* const i32 = LikeType(value, b_.getInt32Ty());
  Type* const i16 = LikeType(value, b_.getInt16Ty());
  Type* const i8 = LikeType(value, b_.getInt8Ty());
  switch (dtype) {
    case DType::kBool: return b_.CreateZExt(value, i8);
    case DType::kF16:
      return b_.CreateBitCast(b_.CreateFPTrunc(value, LikeType(value, b_.getHalfTy())), i16);
    case DType::kBF16: {
      Value* const bits = b_.CreateBitCast(value, i32);
      return b_.CreateTrunc(b_.CreateLShr(bits, Splat(bits, 16)), i16);
    }
    case DType::kF8E4M3:
    case DType::kF8E5M2: return b_.CreateTrunc(PackFp8(value, dtype), i8);
    default: return value;
  }
}

Value* AluEmitter::Cast(Value* value, DType from, DType to) {
  if (from == to) return value;
  Type* const target = LikeType(value, RegisterType(b_.getContext(), to));
  if (IsFloat(from)) {
    if (IsBool(to)) return b_.CreateFCmpUNE(value, llvm::ConstantFP::get(value->getType(), 0.0));
    if (IsInt(to)) {
      const auto id = IsSigned(to) ? llvm::Intrinsic::fptosi_sat : llvm::Intrinsic::fptoui_sat;
      return b_.CreateIntrinsic(id, {target, value->getType()}, {value});
    }
    if (to == DType::kF64) return b_.CreateFPExt(value, target);
    if (from == DType::kF64)
      return IsSmallFloat(to) ? Round(NarrowToOdd(value), to) : b_.CreateFPTrunc(value, target);
    return Round(value, to);
  }
  if (IsBool(to)) return b_.CreateICmpNE(value, Splat(value, 0));
  if (IsFloat(to)) {
    const bool is_signed = IsSigned(from);
    const auto convert = [&](Type* type) {
      return is_signed ? b_.CreateSIToFP(value, type) : b_.CreateUIToFP(value, type);
    };
    if (!IsSmallFloat(to)) return convert(target);
    if (ByteWidth(from) <= 2) return Round(convert(target), to);  // exact in f32
    return Round(NarrowToOdd(convert(LikeType(value, b_.getDoubleTy()))), to);
  }
  return IsSigned(from) ? b_.CreateSExtOrTrunc(value, target) : b_.CreateZExtOrTrunc(value, target);
}

Value* AluEmitter::Bitcast(Value* value, DType from, DType to) {
  if (from == to) return value;
  Value* memory = ToMemory(value, from);
  memory = b_.CreateBitCast(memory, LikeType(memory, MemoryType(b_.getContext(), to)));
  return FromMemory(memory, to);
}

}  // namespace outboard::render
