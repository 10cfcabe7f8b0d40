// EXP2 and LOG2 of f32 as a few instructions, so that they run in lanes like all else. Errors,
// measured over all floats by codegen_test, are below 2.4e-7 relative (docs/semantics.md allows
// 4u); results that are subnormal may be off by one.
#include <llvm/IR/Intrinsics.h>

#include <cmath>

#include "compiler/render/llvm_alu.h"

namespace outboard::render {

using llvm::Type;
using llvm::Value;

namespace {

// 2^f = sum of (f ln 2)^k / k!: for |f| <= 1/2 the first term left out is below 2^-27.
constexpr int kExpTerms = 7;
// log m = 2 (s + s^3/3 + s^5/5 ...) with s = (m - 1) / (m + 1): for m in [0.7, 1.42) the s^11 term
// is below 2^-30.
constexpr int kLogTerms = 5;

}  // namespace

Value* AluEmitter::Exp2(Value* x) {
  Type* const f32 = x->getType();
  Type* const i32 = LikeType(x, b_.getInt32Ty());
  const auto number = [&](double v) { return llvm::ConstantFP::get(f32, v); };
  // Beyond these everything is 0 or infinity. A NaN passes both comparisons unchanged.
  x = b_.CreateSelect(b_.CreateFCmpOGT(x, number(130)), number(130), x);
  x = b_.CreateSelect(b_.CreateFCmpOLT(x, number(-160)), number(-160), x);
  // Adding 1.5 * 2^23 leaves the nearest integer in the low bits.
  Value* const magic = number(12582912.0);
  Value* const shifted = b_.CreateFAdd(x, magic);
  Value* const f = b_.CreateFSub(x, b_.CreateFSub(shifted, magic));
  Value* const n = b_.CreateSub(b_.CreateBitCast(shifted, i32), b_.CreateBitCast(magic, i32));
  double coefficient = 1;
  double coefficients[kExpTerms + 1];
  for (int k = 0; k <= kExpTerms; ++k) {
    coefficients[k] = coefficient;
    coefficient *= M_LN2 / (k + 1);
  }
  Value* sum = number(coefficients[kExpTerms]);
  for (int k = kExpTerms; k-- > 0;)
    sum = b_.CreateFAdd(b_.CreateFMul(sum, f), number(coefficients[k]));
  // times 2^n in two steps, since n may be below the smallest exponent
  Value* const half = b_.CreateAShr(n, Splat(n, 1));
  const auto power = [&](Value* e) {
    return b_.CreateBitCast(b_.CreateShl(b_.CreateAdd(e, Splat(e, 127)), Splat(e, 23)), f32);
  };
  return b_.CreateFMul(b_.CreateFMul(sum, power(half)), power(b_.CreateSub(n, half)));
}

Value* AluEmitter::Log2(Value* x) {
  Type* const f32 = x->getType();
  Type* const i32 = LikeType(x, b_.getInt32Ty());
  const auto number = [&](double v) { return llvm::ConstantFP::get(f32, v); };
  // Subnormal numbers are made normal.
  Value* const tiny = b_.CreateFCmpOLT(x, number(0x1p-126));
  Value* const scaled = b_.CreateSelect(tiny, b_.CreateFMul(x, number(0x1p23)), x);
  // x = m * 2^e with m in [sqrt(1/2), sqrt(2)): subtracting the bits of sqrt(1/2) makes the
  // exponent carry.
  Value* const bits = b_.CreateBitCast(scaled, i32);
  Value* const base = Splat(bits, 0x3f3504f3);
  Value* const e = b_.CreateAShr(b_.CreateSub(bits, base), Splat(bits, 23));
  Value* const m = b_.CreateBitCast(b_.CreateSub(bits, b_.CreateShl(e, Splat(bits, 23))), f32);
  Value* const s = b_.CreateFDiv(b_.CreateFSub(m, number(1)), b_.CreateFAdd(m, number(1)));
  Value* const square = b_.CreateFMul(s, s);
  Value* sum = number(2 * M_LOG2E / (2 * kLogTerms - 1));
  for (int k = kLogTerms - 1; k-- > 0;)
    sum = b_.CreateFAdd(b_.CreateFMul(sum, square), number(2 * M_LOG2E / (2 * k + 1)));
  Value* const exponent =
      b_.CreateFSub(b_.CreateSIToFP(e, f32), b_.CreateSelect(tiny, number(23), number(0)));
  Value* out = b_.CreateFAdd(b_.CreateFMul(sum, s), exponent);
  const double infinity = HUGE_VAL;
  out = b_.CreateSelect(b_.CreateFCmpOEQ(x, number(infinity)), number(infinity), out);
  out = b_.CreateSelect(b_.CreateFCmpOEQ(x, number(0)), number(-infinity), out);
  return b_.CreateSelect(b_.CreateFCmpULT(x, number(0)), number(NAN), out);  // negative, or NaN
}

}  // namespace outboard::render
