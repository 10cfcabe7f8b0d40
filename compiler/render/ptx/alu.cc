// Arithmetic, with exactly the meaning of docs/semantics.md. Nothing traps on a GPU, and shifts
// beyond the width give what they shall: PTX clamps their amounts.
//
// Sums and products of floats say how they round (.rn), so that the assembler joins none of them to
// one instruction. FMA is where the program allows it (Precision::kWithProduct).
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/render/ptx/ptx_printer.h"

namespace outboard::render {

using program::Code;
using program::Precision;

namespace {

// What an operation of integers is called for a type: "s32".
const char* IntegerName(DType type) {
  const bool is_signed = IsSigned(type);
  if (ByteWidth(type) == 8) return is_signed ? "s64" : "u64";
  return is_signed ? "s32" : "u32";
}
const char* FloatName(DType type) { return type == DType::kF64 ? "f64" : "f32"; }

}  // namespace

Width PtxPrinter::WidthOf(DType dtype) {
  if (IsBool(dtype)) return Width::kPred;
  return ByteWidth(dtype) == 8 ? Width::k64 : Width::k32;
}

PtxOperand PtxPrinter::InRegister(const PtxOperand& operand) {
  if (operand.kind == PtxOperand::Kind::kRegister) return operand;
  return text_.Copied(operand);
}

PtxPrinter::Values PtxPrinter::Arithmetic(ValueId n) {
  const Instruction& i = at(n);
  const DType type = at(i.src.back()).dtype;
  const bool with_product = ProductIn(n) >= 0, is_range = RangeIn(n) >= 0;
  if (IsQuotient(n)) {
    PrintQuotients({n});
    return values_[static_cast<size_t>(n)];
  }
  if (IsOfPairs(n)) return ArithmeticOfPairs(n);
  const ClampParts clamp = ClampIn(n);
  const auto sources = SourcesOf(n);
  Values out;
  for (int lane = 0; lane < i.lanes; ++lane) {
    if (IsComputedSmall(n)) {
      out.push_back(SmallArithmetic(n, lane));
      continue;
    }
    if (clamp.number >= 0) {
      out.push_back(text_.Value(clamp.is_below ? "max.NaN.f32" : "min.NaN.f32", Width::k32,
                                {Lane(sources[0], lane), Lane(sources[1], lane)}));
      continue;
    }
    if (is_range) {
      out.push_back(text_.Value("setp.lt.u32", Width::kPred,
                                {AsPrinted(sources[0], lane), AsPrinted(sources[1], lane)}));
      continue;
    }
    absl::InlinedVector<PtxOperand, 3> args;
    for (const ValueId s : sources) args.push_back(Lane(s, lane));
    PtxOperand value;
    if (with_product) {
      value = Alu(Op::kMulAcc, type, args);
    } else if (i.op == Op::kExp2) {
      value = text_.Value(i.imm[1] == 0 ? "ex2.approx.ftz.f32" : "ex2.approx.f32", Width::k32,
                          {args[0]});  // Precision::kByUnit
    } else if (IsInverseByUnit(i)) {
      value = text_.Value("rcp.approx.ftz.f32", Width::k32, {args[1]});
    } else if (i.op == Op::kIDiv || i.op == Op::kMod) {
      value = Divide(i.op, args[0], args[1], type, bounds_[static_cast<size_t>(i.src[0])],
                     bounds_[static_cast<size_t>(i.src[1])]);
    } else {
      value = Alu(i.op, type, args);
    }
    // What fits in 32 bits has 32.
    if (IsSmall(n)) value = Cast(value, DType::kI64, DType::kI32);
    out.push_back(value);
  }
  return out;
}

PtxOperand PtxPrinter::Alu(Op op, DType type, absl::Span<const PtxOperand> args) {
  const PtxOperand& a = args[0];
  const PtxOperand& b = args[args.size() > 1 ? 1 : 0];
  const Width width = WidthOf(type);
  if (op == Op::kWhere) return Select(a, b, args[2]);
  if (IsCompare(op)) return Compare(op, a, b, type);
  if (IsBool(type)) return Logic(op, a, b);
  if (IsFloat(type)) {
    const std::string name = FloatName(type);
    const auto rounded = [&](const char* what, std::initializer_list<PtxOperand> from) {
      return Round(text_.Value(absl::StrCat(what, name), width, from), type);
    };
    switch (op) {
      case Op::kNeg: return text_.Value(absl::StrCat("neg.", name), width, {a});
      case Op::kTrunc: return text_.Value(absl::StrCat("cvt.rzi.", name, ".", name), width, {a});
      case Op::kMax: return Max(a, b, type);
      case Op::kAdd: return rounded("add.rn.", {a, b});
      case Op::kMul: return rounded("mul.rn.", {a, b});
      case Op::kFDiv:
        return ByteWidth(type) < 4 ? Round(DivideSmall(a, b, type), type)
                                   : rounded("div.rn.", {a, b});
      case Op::kSqrt: return rounded("sqrt.rn.", {a});
      case Op::kMulAcc: return rounded("fma.rn.", {a, b, args[2]});
      default: OB_CHECK(false && "not arithmetic of floats"); return {};
    }
  }
  const std::string name = IntegerName(type), bits = BitsName(width);
  const auto wrapped = [&](const char* what, std::initializer_list<PtxOperand> from) {
    return Wrapped(text_.Value(absl::StrCat(what, name), width, from), type);
  };
  switch (op) {
    case Op::kNeg: return wrapped("sub.", {Integer(0, width), a});
    case Op::kMax: return Max(a, b, type);
    case Op::kAdd: return wrapped("add.", {a, b});
    case Op::kMul: return wrapped("mul.lo.", {a, b});
    case Op::kAnd: return text_.Value(absl::StrCat("and.", bits), width, {a, b});
    case Op::kOr: return text_.Value(absl::StrCat("or.", bits), width, {a, b});
    case Op::kXor: return text_.Value(absl::StrCat("xor.", bits), width, {a, b});
    case Op::kShl:
    case Op::kShr: return Shift(op, a, b, type);
    case Op::kThreefry: return Threefry(a, b);
    default: OB_CHECK(false && "not arithmetic of integers"); return {};
  }
}

PtxOperand PtxPrinter::Wrapped(const PtxOperand& value, DType type) {
  if (ByteWidth(type) >= 4) return value;
  if (value.IsConstant()) return Integer(WrapTo(type, static_cast<int64_t>(value.bits)));
  if (IsSigned(type))
    return text_.Value(ByteWidth(type) == 1 ? "cvt.s32.s8" : "cvt.s32.s16", Width::k32, {value});
  return text_.Value("and.b32", Width::k32, {value, Integer(IntMax(type))});
}

// The amount, of the width of `a`, is read as unsigned; what is beyond 32 bits is beyond the width.
PtxOperand PtxPrinter::Shift(Op op, const PtxOperand& a, const PtxOperand& b, DType type) {
  const Width width = WidthOf(type);
  PtxOperand amount = b;
  if (width == Width::k64) {
    constexpr int kBits = 64;
    if (amount.IsConstant()) {
      amount = Integer(std::min<uint64_t>(amount.bits, kBits) & UINT32_MAX);
    } else {
      // By an integer instruction in any case: where a float instruction wrote the register of an
      // amount, ptxas 13.0 converts it as a float.
      amount = text_.Value("min.u64", width, {amount, Integer(kBits, width)});
      amount = text_.Value("cvt.u32.u64", Width::k32, {amount});
    }
  }
  if (op == Op::kShr)
    return text_.Value(absl::StrCat("shr.", IntegerName(type)), width, {a, amount});
  return Wrapped(text_.Value(absl::StrCat("shl.", BitsName(width)), width, {a, amount}), type);
}

// A NaN goes through, and +0 is above -0.
PtxOperand PtxPrinter::Max(const PtxOperand& a, const PtxOperand& b, DType type) {
  const Width width = WidthOf(type);
  if (!IsFloat(type)) return text_.Value(absl::StrCat("max.", IntegerName(type)), width, {a, b});
  if (type != DType::kF64) return text_.Value("max.NaN.f32", width, {a, b});
  const PtxOperand larger = text_.Value("max.f64", width, {a, b});
  const PtxOperand has_nan = text_.Value("setp.nan.f64", Width::kPred, {a, b});
  return Select(has_nan, {PtxOperand::Kind::kFloat, width, 0x7ff8000000000000}, larger);
}

PtxOperand PtxPrinter::Compare(Op op, const PtxOperand& a, const PtxOperand& b, DType type) {
  if (IsBool(type)) {
    if (op == Op::kCmpLt) return Logic(Op::kAnd, Logic(Op::kXor, a, Integer(1, Width::kPred)), b);
    const PtxOperand differs = Logic(Op::kXor, a, b);
    return op == Op::kCmpNe ? differs : Logic(Op::kXor, differs, Integer(1, Width::kPred));
  }
  const char* const name = op == Op::kCmpLt   ? "lt."
                           : op == Op::kCmpEq ? "eq."
                           : IsFloat(type)    ? "neu."
                                              : "ne.";
  return text_.Value(
      absl::StrCat("setp.", name, IsFloat(type) ? FloatName(type) : IntegerName(type)),
      Width::kPred, {a, b});
}

PtxOperand PtxPrinter::Logic(Op op, const PtxOperand& a, const PtxOperand& b) {
  const Width width = Width::kPred;
  if (a.IsConstant() && !b.IsConstant()) return Logic(op, b, a);
  switch (op) {
    case Op::kAnd:
    case Op::kMul:
      if (b.IsTrue()) return a;
      if (b.IsFalse()) return b;
      return text_.Value("and.pred", width, {a, b});
    case Op::kOr:
    case Op::kMax:
      if (b.IsFalse()) return a;
      if (b.IsTrue()) return b;
      return text_.Value("or.pred", width, {a, b});
    case Op::kXor:
    case Op::kAdd:
      if (b.IsFalse()) return a;
      if (a.IsConstant()) return Integer(a.IsTrue() != b.IsTrue(), width);
      if (b.IsTrue()) return text_.Value("not.pred", width, {a});
      return text_.Value("xor.pred", width, {a, b});
    case Op::kNeg: return a;
    default: OB_CHECK(false && "not logic"); return {};
  }
}

PtxOperand PtxPrinter::Select(const PtxOperand& condition, const PtxOperand& a,
                              const PtxOperand& b) {
  if (condition.IsConstant()) return condition.IsTrue() ? a : b;
  if (a == b) return a;
  if (a.width != Width::kPred)
    return text_.Value(absl::StrCat("selp.", BitsName(a.width)), a.width, {a, b, condition});
  const PtxOperand other = Logic(Op::kXor, condition, Integer(1, Width::kPred));
  return Logic(Op::kOr, Logic(Op::kAnd, a, condition), Logic(Op::kAnd, b, other));
}

// Threefry-2x32, 20 rounds (Salmon and others, "Parallel random numbers: as easy as 1, 2, 3",
// 2011).
PtxOperand PtxPrinter::Threefry(const PtxOperand& counter, const PtxOperand& key) {
  constexpr int kRotations[8] = {13, 15, 26, 6, 17, 29, 16, 24};
  constexpr int64_t kParity = 0x1BD11BDA;
  const auto halves = [&](const PtxOperand& whole) {
    const PtxOperand low = text_.New(Width::k32), high = text_.New(Width::k32);
    text_.Line("mov.b64 {", low, ", ", high, "}, ", InRegister(whole));
    return std::pair(low, high);
  };
  const auto add = [&](const PtxOperand& a, const PtxOperand& b) {
    return text_.Value("add.s32", Width::k32, {a, b});
  };
  const auto mix = [&](const PtxOperand& a, const PtxOperand& b) {
    return text_.Value("xor.b32", Width::k32, {a, b});
  };
  auto [x0, x1] = halves(counter);
  const auto [key0, key1] = halves(key);
  const PtxOperand keys[3] = {key0, key1, mix(mix(key0, key1), Integer(kParity))};
  x0 = add(x0, keys[0]);
  x1 = add(x1, keys[1]);
  for (int round = 0; round < 20; ++round) {
    x0 = add(x0, x1);
    x1 = mix(text_.Value("shf.l.wrap.b32", Width::k32, {x1, x1, Integer(kRotations[round % 8])}),
             x0);
    if (round % 4 == 3) {
      const int s = round / 4 + 1;
      x0 = add(x0, keys[s % 3]);
      x1 = add(add(x1, keys[(s + 1) % 3]), Integer(s));
    }
  }
  const PtxOperand out = text_.New(Width::k64);
  text_.Line("mov.b64 ", out, ", {", x0, ", ", x1, "}");
  return out;
}

}  // namespace outboard::render
