// Conversions: between types, and between registers and memory. Where PTX has an instruction with
// docs/semantics.md's meaning, it is that: on these processors none flushes subnormal numbers.
#include <bit>
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/render/ptx/ptx_printer.h"

namespace outboard::render {
namespace {

bool IsSmallFloat(DType type) {
  return IsFloat(type) && type != DType::kF32 && type != DType::kF64;
}

// Of what a register holds: an integer of 8 or 16 bits is extended to 32.
std::string RegisterType(DType type) {
  if (type == DType::kF64) return "f64";
  if (IsFloat(type)) return "f32";
  return absl::StrCat(IsSigned(type) ? "s" : "u", ByteWidth(type) == 8 ? 64 : 32);
}

DType BitsOf(DType dtype) {
  switch (ByteWidth(dtype)) {
    case 1: return DType::kU8;
    case 2: return DType::kU16;
    case 4: return DType::kU32;
    default: return DType::kU64;
  }
}

// Of a constant float.
double NumberOf(const PtxOperand& value) {
  return value.width == Width::k64 ? std::bit_cast<double>(value.bits)
                                   : std::bit_cast<float>(static_cast<uint32_t>(value.bits));
}

// The bits of a constant as it lies in memory.
PtxOperand MemoryBits(const PtxOperand& value, DType dtype) {
  uint64_t bytes = 0;
  if (IsFloat(dtype)) {
    StoreFloat(dtype, NumberOf(value), &bytes);
  } else {
    StoreInt(dtype, static_cast<int64_t>(value.bits), &bytes);
  }
  return Integer(static_cast<int64_t>(bytes));
}

}  // namespace

PtxOperand PtxPrinter::Const(DType dtype, int64_t bits) {
  const Width width = WidthOf(dtype);
  return IsFloat(dtype) ? Float(std::bit_cast<double>(bits), width) : Integer(bits, width);
}

// The f32 nearest to zero's side of an f64, its last bit set where anything was cut off. Rounding
// that to a smaller type gives what rounding the f64 at once would: "round to odd" (Boldo and
// Melquiond, 2005).
PtxOperand PtxPrinter::NarrowToOdd(const PtxOperand& value) {
  const PtxOperand cut = text_.Value("cvt.rz.f32.f64", Width::k32, {value});
  const PtxOperand back = text_.Value("cvt.f64.f32", Width::k64, {cut});
  const PtxOperand inexact = text_.Value("setp.ne.f64", Width::kPred, {back, value});
  const PtxOperand odd = text_.Value("or.b32", Width::k32, {cut, Integer(1)});
  return Select(inexact, odd, cut);
}

// The upper half of a pair whose other number is 0: that is the f32 of the rounded number. Of an
// accumulator ptxas 13.0 waits for each product where it is rounded alone (NotAccumulator).
PtxOperand PtxPrinter::RoundBFloat(const PtxOperand& value) {
  return text_.Value("cvt.rn.bf16x2.f32", Width::k32, {value, Float(0)});
}

// The bits, in the low byte, of the fp8 number nearest to an f32.
PtxOperand PtxPrinter::PackFp8(const PtxOperand& value, DType dtype) {
  const bool e4m3 = dtype == DType::kF8E4M3;
  const int mantissa = e4m3 ? 3 : 2, bias = e4m3 ? 7 : 15;
  const auto of = [&](const char* op, const PtxOperand& a, int64_t b) {
    return text_.Value(op, Width::k32, {a, Integer(b)});
  };
  const PtxOperand sign = of("and.b32", of("shr.u32", value, 24), 0x80);
  const PtxOperand magnitude = of("and.b32", value, 0x7fffffff);
  // Normal numbers: cut the mantissa, to even, and move the bias of the exponent.
  const int cut = 23 - mantissa;
  const PtxOperand last = of("and.b32", of("shr.u32", magnitude, cut), 1);
  const PtxOperand rounded = text_.Value(
      "add.s32", Width::k32, {magnitude, of("add.s32", last, (int64_t{1} << (cut - 1)) - 1)});
  const PtxOperand normal =
      of("sub.s32", of("shr.u32", rounded, cut), int64_t{127 - bias} << mantissa);
  // Subnormal ones: adding a number whose last place is their step lets the addition round.
  const int64_t magic = int64_t{127 + 1 - bias + cut} << 23;
  const PtxOperand shifter{PtxOperand::Kind::kFloat, Width::k32, static_cast<uint64_t>(magic)};
  const PtxOperand subnormal =
      of("sub.s32", text_.Value("add.rn.f32", Width::k32, {magnitude, shifter}), magic);
  const PtxOperand is_small =
      text_.Value("setp.lt.u32", Width::kPred, {magnitude, Integer(int64_t{127 + 1 - bias} << 23)});
  const PtxOperand finite = Select(is_small, subnormal, normal);
  // Too large: infinity, or the largest number where there is none.
  const PtxOperand capped = of("min.u32", finite, e4m3 ? 0x7e : 0x7c);
  const PtxOperand is_nan = text_.Value("setp.nan.f32", Width::kPred, {value, value});
  return Select(is_nan, Integer(e4m3 ? 0x7f : 0x7e),
                text_.Value("or.b32", Width::k32, {sign, capped}));
}

PtxOperand PtxPrinter::UnpackFp8(const PtxOperand& bits, DType dtype) {
  const bool e4m3 = dtype == DType::kF8E4M3;
  const int mantissa = e4m3 ? 3 : 2, bias = e4m3 ? 7 : 15;
  const auto of = [&](const char* op, const PtxOperand& a, int64_t b) {
    return text_.Value(op, Width::k32, {a, Integer(b)});
  };
  const auto is = [&](const char* op, const PtxOperand& a, int64_t b) {
    return text_.Value(op, Width::kPred, {a, Integer(b)});
  };
  const PtxOperand sign = of("shl.b32", of("and.b32", bits, 0x80), 24);
  const PtxOperand magnitude = of("and.b32", bits, 0x7f);
  const PtxOperand normal =
      of("add.s32", of("shl.b32", magnitude, 23 - mantissa), int64_t{127 - bias} << 23);
  // Subnormal: the integer times its step.
  const PtxOperand subnormal = text_.Value("mul.rn.f32", Width::k32,
                                           {text_.Value("cvt.rn.f32.u32", Width::k32, {magnitude}),
                                            Float(std::ldexp(1.0, 1 - bias - mantissa))});
  PtxOperand out = Select(is("setp.lt.u32", magnitude, int64_t{1} << mantissa), subnormal, normal);
  const PtxOperand nan = Integer(0x7fc00000);
  if (e4m3) {
    out = Select(is("setp.eq.u32", magnitude, 0x7f), nan, out);
  } else {
    out = Select(is("setp.eq.u32", magnitude, 0x7c), Integer(0x7f800000), out);
    out = Select(is("setp.gt.u32", magnitude, 0x7c), nan, out);
  }
  return text_.Value("or.b32", Width::k32, {out, sign});
}

PtxOperand PtxPrinter::Round(const PtxOperand& value, DType dtype) {
  if (value.IsConstant() && IsSmallFloat(dtype)) return Float(RoundTo(dtype, NumberOf(value)));
  const auto known = [&](const PtxOperand& rounded) {
    unrounded_[rounded.bits] = {dtype, value};
    return rounded;
  };
  switch (dtype) {
    case DType::kF16:
      return known(text_.Value("cvt.f32.f16", Width::k32,
                               {text_.Value("cvt.rn.f16.f32", Width::k16, {value})}));
    case DType::kBF16: return known(RoundBFloat(value));
    case DType::kF8E4M3:
    case DType::kF8E5M2: return UnpackFp8(PackFp8(value, dtype), dtype);
    default: return value;
  }
}

PtxOperand PtxPrinter::Unrounded(const PtxOperand& value, DType dtype) const {
  if (value.kind != PtxOperand::Kind::kRegister || value.width != Width::k32) return {};
  const auto known = unrounded_.find(value.bits);
  return known == unrounded_.end() || known->second.first != dtype ? PtxOperand()
                                                                   : known->second.second;
}

// Numbers that were rounded to the type are rounded together as they were before: each alone is
// then left out, unless something else reads it.
PtxOperand PtxPrinter::HalvesOf(PtxOperand low, PtxOperand high, DType dtype) {
  const PtxOperand first = Unrounded(low, dtype), second = Unrounded(high, dtype);
  if (!first.IsNone() && !second.IsNone()) {
    low = first;
    high = second;
  } else if (dtype == DType::kBF16) {
    return text_.Value("prmt.b32", Width::k32, {Bits(low), Bits(high), Integer(0x7632)});
  }
  return text_.Value(dtype == DType::kBF16 ? "cvt.rn.bf16x2.f32" : "cvt.rn.f16x2.f32", Width::k32,
                     {InRegister(high), InRegister(low)});
}

PtxOperand PtxPrinter::FromMemory(const PtxOperand& bits, DType dtype) {
  switch (dtype) {
    case DType::kBool: return text_.Value("setp.ne.u32", Width::kPred, {bits, Integer(0)});
    case DType::kF16:
      return text_.Value("cvt.f32.f16", Width::k32,
                         {text_.Value("cvt.u16.u32", Width::k16, {InRegister(bits)})});
    case DType::kBF16: return text_.Value("shl.b32", Width::k32, {bits, Integer(16)});
    case DType::kF8E4M3:
    case DType::kF8E5M2: return UnpackFp8(bits, dtype);
    default: return IsSigned(dtype) ? Wrapped(bits, dtype) : bits;
  }
}

PtxOperand PtxPrinter::ToMemory(const PtxOperand& value, DType dtype) {
  if (ByteWidth(dtype) >= 4) return value;
  if (value.IsConstant()) return MemoryBits(value, dtype);
  // Alone in a word, which may be rounded as a pair.
  if (const PtxOperand before = Unrounded(value, dtype); !before.IsNone())
    return text_.Value(dtype == DType::kBF16 ? "cvt.rn.bf16x2.f32" : "cvt.rn.f16x2.f32",
                       Width::k32, {Float(0), before});
  switch (dtype) {
    case DType::kBool: return Select(value, Integer(1), Integer(0));
    case DType::kF16:
      return text_.Value("cvt.u32.u16", Width::k32,
                         {text_.Value("cvt.rn.f16.f32", Width::k16, {value})});
    case DType::kBF16: return text_.Value("shr.u32", Width::k32, {value, Integer(16)});
    case DType::kF8E4M3:
    case DType::kF8E5M2: return PackFp8(value, dtype);
    default: return value;
  }
}

PtxOperand PtxPrinter::Cast(const PtxOperand& value, DType from, DType to) {
  if (from == to) return value;
  const Width width = WidthOf(to);
  const auto convert = [&](const char* how, DType type) {
    return text_.Value(absl::StrCat("cvt.", how, RegisterType(type), ".", RegisterType(from)),
                       WidthOf(type), {InRegister(value)});
  };
  if (IsBool(from)) {
    if (IsFloat(to)) return Select(value, Float(1, width), Float(0, width));
    return Select(value, Integer(1, width), Integer(0, width));
  }
  if (IsBool(to)) return Compare(Op::kCmpNe, value, Const(from, 0), from);
  if (IsFloat(from)) {
    if (IsInt(to)) {
      PtxOperand whole = convert("rzi.", to);
      if (ByteWidth(to) < 4) {  // beyond the range the nearest end of it
        const char* const type = IsSigned(to) ? "s32" : "u32";
        whole = text_.Value(absl::StrCat("min.", type), width, {whole, Integer(IntMax(to))});
        if (IsSigned(to)) whole = text_.Value("max.s32", width, {whole, Integer(IntMin(to))});
      }
      // PTX says that a NaN is 0 only from f32 to 32 bits.
      if (from != DType::kF64 && width == Width::k32) return whole;
      const PtxOperand is_nan =
          text_.Value(absl::StrCat("setp.nan.", RegisterType(from)), Width::kPred, {value, value});
      return Select(is_nan, Integer(0, width), whole);
    }
    if (to == DType::kF64) return convert("", to);
    if (from != DType::kF64) return Round(value, to);
    return IsSmallFloat(to) ? Round(NarrowToOdd(value), to) : convert("rn.", to);
  }
  if (IsFloat(to)) {
    if (!IsSmallFloat(to)) return convert("rn.", to);
    if (ByteWidth(from) <= 2) return Round(convert("rn.", DType::kF32), to);  // exact in f32
    return Round(NarrowToOdd(convert("rn.", DType::kF64)), to);
  }
  if (value.IsConstant()) return Integer(WrapTo(to, static_cast<int64_t>(value.bits)), width);
  if (ByteWidth(from) == 8)
    return width == Width::k64 ? value
                               : Wrapped(text_.Value("cvt.u32.u64", Width::k32, {value}), to);
  if (width == Width::k64)
    return text_.Value(IsSigned(from) ? "cvt.s64.s32" : "cvt.u64.u32", width, {value});
  const bool fits = IntMin(from) >= IntMin(to) && IntMax(from) <= IntMax(to);
  return fits ? value : Wrapped(value, to);
}

PtxOperand PtxPrinter::Bitcast(const PtxOperand& value, DType from, DType to) {
  if (from == to) return value;
  if (value.IsConstant() && ByteWidth(from) >= 4) {
    PtxOperand bits = Bits(value);
    if (IsFloat(to)) bits.kind = PtxOperand::Kind::kFloat;
    if (to == DType::kF32) bits.bits &= UINT32_MAX;
    if (IsInt(to)) bits.bits = static_cast<uint64_t>(WrapTo(to, static_cast<int64_t>(bits.bits)));
    return bits;
  }
  PtxOperand bits = ToMemory(value, from);
  // A signed integer fills its register with its sign.
  if (IsSigned(from)) bits = Wrapped(bits, BitsOf(from));
  return FromMemory(bits, to);
}

// The bytes as they lie in memory, by arithmetic.
PtxPrinter::Values PtxPrinter::BitcastLanes(ValueId n) {
  const Instruction& i = at(n);
  const DType from = at(i.src[0]).dtype;
  const int lanes = at(i.src[0]).lanes, width = ByteWidth(from), out_width = ByteWidth(i.dtype);
  Values out;
  if (const auto packed = packed_.find(i.src[0]); packed != packed_.end() && i.dtype == DType::kU32)
    return packed->second;
  if (width == out_width) {
    for (int lane = 0; lane < i.lanes; ++lane)
      out.push_back(Bitcast(Lane(i.src[0], lane), from, i.dtype));
    return out;
  }
  const Width whole_width = WidthOf(BitsOf(width > out_width ? from : i.dtype));
  const char* const bits_name = whole_width == Width::k64 ? "b64" : "b32";
  for (int lane = 0; lane < i.lanes; ++lane) {
    if (width > out_width) {
      const int ratio = width / out_width, shift = 8 * out_width * (lane % ratio);
      PtxOperand bits = Bitcast(Lane(i.src[0], lane / ratio), from, BitsOf(from));
      if (shift > 0)
        bits = text_.Value(width == 8 ? "shr.u64" : "shr.u32", whole_width, {bits, Integer(shift)});
      out.push_back(Bitcast(Cast(bits, BitsOf(from), BitsOf(i.dtype)), BitsOf(i.dtype), i.dtype));
      continue;
    }
    const int ratio = out_width / width;
    PtxOperand bits = Integer(0, whole_width);
    for (int part = 0; part < ratio && lane * ratio + part < lanes; ++part) {
      PtxOperand piece = Bitcast(Lane(i.src[0], lane * ratio + part), from, BitsOf(from));
      piece = Cast(piece, BitsOf(from), BitsOf(i.dtype));
      if (part > 0)
        piece = text_.Value(absl::StrCat("shl.", bits_name), whole_width,
                            {piece, Integer(8 * width * part)});
      bits = part == 0 ? piece
                       : text_.Value(absl::StrCat("or.", bits_name), whole_width, {bits, piece});
    }
    out.push_back(Bitcast(bits, BitsOf(i.dtype), i.dtype));
  }
  return out;
}

}  // namespace outboard::render
