#include "compiler/render/value_bounds.h"

#include <algorithm>

namespace outboard::render {
namespace {

using program::Code;
using program::Instruction;
using Wide = __int128;

// What wraps can be any number of the type.
ValueBounds Within(DType type, Wide min, Wide max) {
  const ValueBounds whole{IntMin(type), IntMax(type)};
  if (min < whole.min || max > whole.max) return whole;
  return {static_cast<int64_t>(min), static_cast<int64_t>(max)};
}

ValueBounds OfAlu(const Instruction& i, const ValueBounds& a, const ValueBounds& b,
                  const ValueBounds& c) {
  const ValueBounds whole{IntMin(i.dtype), IntMax(i.dtype)};
  const auto products = [&](auto&& of) {
    const Wide corners[] = {of(a.min, b.min), of(a.min, b.max), of(a.max, b.min), of(a.max, b.max)};
    return Within(i.dtype, *std::min_element(corners, corners + 4),
                  *std::max_element(corners, corners + 4));
  };
  switch (i.op) {
    case Op::kAdd: return Within(i.dtype, Wide{a.min} + b.min, Wide{a.max} + b.max);
    case Op::kMul: return products([](int64_t x, int64_t y) { return Wide{x} * y; });
    case Op::kNeg: return Within(i.dtype, -Wide{a.max}, -Wide{a.min});
    case Op::kMax: return {std::max(a.min, b.min), std::max(a.max, b.max)};
    case Op::kWhere: return {std::min(b.min, c.min), std::max(b.max, c.max)};
    case Op::kIDiv:
      if (b.min <= 0) return whole;
      return products([](int64_t x, int64_t y) { return Wide{x} / y; });
    case Op::kMod:
      if (b.min <= 0) return whole;
      return {a.min < 0 ? std::max(a.min, 1 - b.max) : 0,
              a.max > 0 ? std::min(a.max, b.max - 1) : 0};
    case Op::kAnd:
      if (a.min < 0 && b.min < 0) return whole;
      return {0, std::min(a.min < 0 ? b.max : a.max, b.min < 0 ? a.max : b.max)};
    case Op::kShr:
      if (a.min < 0) return whole;
      return {0, a.max};
    default: return whole;
  }
}

// An even number between 1 and 111 is one between 2 and 110. `divisor` is a power of two.
ValueBounds OfMultiples(int64_t divisor, const ValueBounds& bounds) {
  const int64_t below = bounds.max & -divisor;
  const auto above = static_cast<int64_t>(-(-Wide{bounds.min} & -divisor));
  return above <= below ? ValueBounds{above, below} : bounds;
}

// Of a bool: {1, 1} if it is always true.
ValueBounds OfCondition(const Instruction& i, const ValueBounds& a, const ValueBounds& b) {
  constexpr ValueBounds kAlways{1, 1}, kNever{0, 0};
  if (i.code == Code::kConst) return i.imm[0] != 0 ? kAlways : kNever;
  if (i.code != Code::kAlu) return {0, 1};
  switch (i.op) {
    case Op::kCmpLt:
      if (a.max < b.min) return kAlways;
      return a.min >= b.max ? kNever : ValueBounds{0, 1};
    case Op::kAnd: return {a.min & b.min, a.max & b.max};
    case Op::kOr: return {a.min | b.min, a.max | b.max};
    default: return {0, 1};
  }
}

ValueBounds Of(const Instruction& i, const std::vector<ValueBounds>& known,
               const program::Program& program) {
  const auto source = [&](size_t s) { return s < i.src.size() ? known[i.src[s]] : ValueBounds(); };
  // Of a float, of a u64 nothing is known.
  if (IsBool(i.dtype)) return OfCondition(i, source(0), source(1));
  switch (i.code) {
    case Code::kConst: return {i.imm[0], i.imm[0]};
    case Code::kVar: return {i.imm[1], i.imm[2]};
    case Code::kSpecial: return {0, i.imm[1] - 1};
    case Code::kLoop: return {0, std::max<int64_t>(i.imm[0], 1)};  // at its end it is the extent
    case Code::kLane: return source(0);
    case Code::kLanes: {
      ValueBounds all = source(0);
      for (size_t s = 1; s < i.src.size(); ++s)
        all = {std::min(all.min, source(s).min), std::max(all.max, source(s).max)};
      return all;
    }
    case Code::kCast: {
      const DType from = program.code[i.src[0]].dtype;
      if (IsFloat(from) || from == DType::kU64) break;
      return Within(i.dtype, source(0).min, source(0).max);
    }
    case Code::kAlu: return OfAlu(i, source(0), source(1), source(2));
    default: break;
  }
  return {IntMin(i.dtype), IntMax(i.dtype)};
}

}  // namespace

std::vector<ValueBounds> BoundsOf(const program::Program& program) {
  std::vector<ValueBounds> known(program.code.size());
  const std::vector<int64_t> divisors = DivisorsOf(program);
  for (size_t n = 0; n < program.code.size(); ++n) {
    const Instruction& i = program.code[n];
    if (!program::HasValue(i.code) || i.lanes == 0) continue;
    if (!IsBool(i.dtype) && (!IsInt(i.dtype) || i.dtype == DType::kU64)) continue;
    known[n] = OfMultiples(divisors[n], Of(i, known, program));
  }
  return known;
}

bool FitsIn32Bits(const Instruction& instruction, const ValueBounds& bounds) {
  return instruction.dtype == DType::kI64 && bounds.min >= INT32_MIN && bounds.max <= INT32_MAX;
}

bool IsComputedIn32Bits(const program::Program& program, const std::vector<ValueBounds>& bounds,
                        program::ValueId n) {
  const auto at = [&](program::ValueId v) -> const Instruction& {
    return program.code[static_cast<size_t>(v)];
  };
  const auto fits = [&](program::ValueId v) {
    return FitsIn32Bits(at(v), bounds[static_cast<size_t>(v)]);
  };
  const Instruction& i = at(n);
  switch (i.op) {
    case Op::kAdd:
    case Op::kMul:
    case Op::kNeg:
    case Op::kMax:
    case Op::kWhere:
    case Op::kIDiv:
    case Op::kMod:
    case Op::kAnd:
    case Op::kShr:
      if (!fits(n)) return false;
      break;
    case Op::kCmpLt:
    case Op::kCmpEq:
    case Op::kCmpNe: break;
    default: return false;
  }
  return at(i.src.back()).dtype == DType::kI64 &&
         std::ranges::all_of(i.src,
                             [&](program::ValueId s) { return IsBool(at(s).dtype) || fits(s); });
}

std::vector<int64_t> DivisorsOf(const program::Program& program) {
  std::vector<int64_t> known(program.code.size(), 1);
  for (size_t n = 0; n < known.size(); ++n) {
    const Instruction& i = program.code[n];
    if (i.dtype != DType::kI64 || i.lanes != 1) continue;
    const auto source = [&](size_t s) { return known[i.src[s]]; };
    if (i.code == Code::kConst) {
      const auto bits = static_cast<uint64_t>(i.imm[0]);
      known[n] =
          bits == 0 ? kDivisorMax : std::min(kDivisorMax, static_cast<int64_t>(bits & (~bits + 1)));
    } else if (i.code == Code::kAlu) {
      switch (i.op) {
        case Op::kAdd:
        case Op::kMax: known[n] = std::min(source(0), source(1)); break;
        case Op::kMul: known[n] = std::min(kDivisorMax, source(0) * source(1)); break;
        case Op::kNeg: known[n] = source(0); break;
        case Op::kMod: known[n] = std::min(source(0), source(1)); break;
        case Op::kWhere: known[n] = std::min(source(1), source(2)); break;
        default: break;
      }
    }
    if (known[n] < 1) known[n] = 1;
  }
  return known;
}

}  // namespace outboard::render
