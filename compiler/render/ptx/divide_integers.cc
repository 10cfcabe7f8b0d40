// Quotients and remainders of integers. The assembler divides by a constant as by any number (20
// instructions of 32 bits, a function of 64), so what a constant allows is done here.
#include <bit>
#include <string>

#include "absl/strings/str_cat.h"
#include "compiler/render/ptx/ptx_printer.h"

namespace outboard::render {

// By a power of two with shifts; by others with the upper half of a product ("Division by invariant
// integers using multiplication", Granlund and Montgomery, 1994). With l = ceil(log2 divisor) and
// multiplier m = floor(2^(N+l) / divisor) + 1, floor(a / divisor) = floor(a * m / 2^(N+l)) for all
// a below 2^N.
PtxOperand PtxPrinter::DivideByConstant(Op op, const PtxOperand& a, uint64_t divisor, Width width,
                                        ConstantDivision kind) {
  using Wide = unsigned __int128;
  const int bits = width == Width::k64 ? 64 : 32;
  const std::string u = absl::StrCat("u", bits), s = absl::StrCat("s", bits),
                    b = absl::StrCat("b", bits);
  const auto of = [&](const char* what, const std::string& type, const PtxOperand& x,
                      const PtxOperand& y) {
    return text_.Value(absl::StrCat(what, type), width, {x, y});
  };
  const auto number = [&](uint64_t value) {
    return Integer(bits == 64 ? static_cast<int64_t>(value) : static_cast<int32_t>(value), width);
  };
  const int log = std::bit_width(divisor - 1);
  const bool divides = op == Op::kIDiv, is_signed = kind == ConstantDivision::kSigned;
  if (divisor == 1) return divides ? a : number(0);
  PtxOperand quotient;
  if (std::has_single_bit(divisor)) {
    if (!is_signed)
      return divides ? of("shr.", u, a, Integer(log)) : of("and.", b, a, number(divisor - 1));
    // Towards zero: a negative dividend is raised by divisor - 1 before.
    const PtxOperand sign = of("shr.", s, a, Integer(bits - 1));
    const PtxOperand raised = of("add.", s, a, of("shr.", u, sign, Integer(bits - log)));
    if (!divides) return of("sub.", s, a, of("and.", b, raised, number(~(divisor - 1))));
    return of("shr.", s, raised, Integer(log));
  }
  if (kind == ConstantDivision::kUnsigned) {
    // N = bits: the multiplier has one bit more, whose product is added without a carry.
    const auto m = static_cast<uint64_t>((((Wide{1} << log) - divisor) << bits) / divisor + 1);
    const PtxOperand high = of("mul.hi.", u, a, number(m));
    const PtxOperand half = of("shr.", u, of("sub.", s, a, high), Integer(1));
    quotient = of("shr.", u, of("add.", s, half, high), Integer(log - 1));
  } else {
    const auto m = static_cast<uint64_t>((Wide{1} << (bits - 1 + log)) / divisor + 1);
    if (!is_signed) {
      quotient = of("shr.", u, of("mul.hi.", u, a, number(m)), Integer(log - 1));
    } else {
      // As a signed number the multiplier is m - 2^bits.
      quotient = of("add.", s, of("mul.hi.", s, a, number(m)), a);
      quotient = of("shr.", s, quotient, Integer(log - 1));
      quotient = of("add.", s, quotient, of("shr.", u, a, Integer(bits - 1)));
    }
  }
  if (divides) return quotient;
  return text_.Value(absl::StrCat("mad.lo.", s), width, {quotient, number(0 - divisor), a});
}

PtxOperand PtxPrinter::Divide(Op op, const PtxOperand& a, const PtxOperand& b, DType type,
                              const ValueBounds& of_a, const ValueBounds& of_b) {
  const Width width = WidthOf(type);
  const bool divides = op == Op::kIDiv, is_signed = IsSigned(type);
  const bool known = type != DType::kU64;
  const bool not_negative = known && of_a.min >= 0;
  const bool half = not_negative && of_a.max <= (width == Width::k64 ? INT64_MAX : INT32_MAX);
  if (b.IsConstant() && !a.IsConstant() && static_cast<int64_t>(b.bits) > 0) {
    const ConstantDivision kind = half        ? ConstantDivision::kNotNegative
                                  : is_signed ? ConstantDivision::kSigned
                                              : ConstantDivision::kUnsigned;
    return DivideByConstant(op, a, b.bits, width, kind);
  }
  // Of what is not negative the unsigned quotient is the same, with fewer instructions.
  const std::string bits = width == Width::k64 ? "64" : "32";
  const bool positive = known && of_b.min > 0;
  const bool with_sign = is_signed && !(not_negative && positive);
  const PtxOperand zero = Integer(0, width);
  const PtxOperand plain = text_.Value(
      absl::StrCat(divides ? "div." : "rem.", with_sign ? "s" : "u", bits), width, {a, b});
  if (positive) return plain;
  PtxOperand result = plain;
  const auto is = [&](int64_t number) {
    return text_.Value(absl::StrCat("setp.eq.s", bits), Width::kPred, {b, Integer(number, width)});
  };
  if (is_signed)
    result =
        Select(is(-1), divides ? text_.Value(absl::StrCat("sub.s", bits), width, {zero, a}) : zero,
               result);
  return Wrapped(Select(is(0), divides ? zero : a, result), type);
}

}  // namespace outboard::render
