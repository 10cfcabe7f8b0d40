#include "compiler/rewrite/condition.h"

#include <algorithm>
#include <array>

#include "base/check.h"
#include "compiler/rewrite/rebuild.h"

namespace outboard {
namespace {

using Kind = PatternNode::Kind;
using Wide = __int128;

const UOp* FirstBound(const Pattern& pattern, int at, const Match& match) {
  const PatternNode& p = pattern.nodes[at];
  if (p.name >= 0) return match.bound[p.name];
  for (int i = 0; i < p.source_count; ++i)
    if (const UOp* found = FirstBound(pattern, p.source[i], match)) return found;
  return nullptr;
}

// The least and greatest value of an expression in exact integers, and whether every step stayed
// within `dtype`.
struct Reach {
  Wide min = 0, max = 0;
  bool fits = true;
};

Reach ReachOf(const Pattern& pattern, int at, const Match& match, DType dtype) {
  const PatternNode& p = pattern.nodes[at];
  Reach r;
  if (p.name >= 0) {
    r.min = match.bound[p.name]->vmin;
    r.max = match.bound[p.name]->vmax;
  } else if (p.kind == Kind::kInt) {
    r.min = r.max = p.number;
  } else {
    const Reach a = ReachOf(pattern, p.source[0], match, dtype);
    const Reach b = p.source_count > 1 ? ReachOf(pattern, p.source[1], match, dtype) : Reach{};
    r.fits = a.fits && b.fits;
    if (!r.fits) return r;  // so that nothing below overflows: every operand is within 64 bits
    if (p.op == Op::kNeg) {
      r.min = -a.max;
      r.max = -a.min;
    } else if (p.op == Op::kAdd) {
      r.min = a.min + b.min;
      r.max = a.max + b.max;
    } else if (p.op == Op::kMul) {
      const auto [least, most] =
          std::minmax({a.min * b.min, a.min * b.max, a.max * b.min, a.max * b.max});
      r.min = least;
      r.max = most;
    } else {
      r.fits = false;
    }
  }
  r.fits = r.fits && r.min >= IntMin(dtype) && r.max <= IntMax(dtype);
  return r;
}

Wide Evaluate(const Pattern& pattern, int at, const Match& match) {
  const PatternNode& p = pattern.nodes[at];
  const auto value = [&](int i) { return Evaluate(pattern, p.source[i], match); };
  const auto node = [&] { return FirstBound(pattern, p.source[0], match); };
  switch (p.kind) {
    case Kind::kConstName: return ConstantOf(match.bound[p.name])->int_value();
    case Kind::kInt: return p.number;
    case Kind::kIsInt: return IsInt(node()->dtype);
    case Kind::kIsSigned: return IsSigned(node()->dtype);
    case Kind::kIsBool: return IsBool(node()->dtype);
    case Kind::kIsFloat: return IsFloat(node()->dtype);
    case Kind::kIsScalar: return node()->shape.empty();
    case Kind::kNotNegative: return node()->vmin >= 0 && !IsFloat(node()->dtype);
    case Kind::kLow: return node()->vmin;
    case Kind::kHigh: return node()->vmax;
    case Kind::kFits: return ReachOf(pattern, p.source[0], match, node()->dtype).fits;
    case Kind::kDivides: {
      const Wide divisor = value(0);
      return divisor != 0 && value(1) % divisor == 0;
    }
    case Kind::kBoth: return value(0) && value(1);
    case Kind::kEither: return value(0) || value(1);
    case Kind::kNot: return !value(0);
    case Kind::kOp:
      switch (p.op) {
        case Op::kNeg: return -value(0);
        case Op::kAdd: return value(0) + value(1);
        case Op::kMul: return value(0) * value(1);
        case Op::kIDiv: return value(1) == 0 ? Wide{0} : value(0) / value(1);
        case Op::kMod: return value(1) == 0 ? value(0) : value(0) % value(1);
        case Op::kCmpLt: return value(0) < value(1);
        case Op::kCmpEq: return value(0) == value(1);
        case Op::kCmpNe: return value(0) != value(1);
        default: break;
      }
      [[fallthrough]];
    default: OB_CHECK(false && "this cannot stand in a condition");
  }
}

// One type of each class, scalar and shaped ones next to each other.
constexpr std::array<DType, kTypeClasses / 2> kTypeOfClass = {
    DType::kBool, DType::kI64, DType::kU64, DType::kF32, DType::kVoid};

}  // namespace

PatternNodes ConjunctNodes(const Pattern& condition) {
  PatternNodes parts;
  if (condition.size == 0) return parts;
  PatternNodes left = {static_cast<int8_t>(condition.size - 1)};
  while (!left.empty()) {
    const int8_t at = left.back();
    left.pop_back();
    const PatternNode& p = condition.nodes[at];
    if (p.kind == Kind::kBoth) {
      left.push_back(p.source[1]);
      left.push_back(p.source[0]);
    } else {
      parts.push_back(at);
    }
  }
  return parts;
}

bool Holds(const Pattern& condition, int at, const Match& match) {
  return Evaluate(condition, at, match) != 0;
}

int TypeClassOf(DType operands, bool scalar) {
  const int type = IsBool(operands)       ? 0
                   : IsSigned(operands)   ? 1
                   : IsUnsigned(operands) ? 2
                   : IsFloat(operands)    ? 3
                                          : 4;
  return 2 * type + !scalar;
}

uint32_t NamesOfOperandType(const Pattern& match) {
  uint32_t names = IsAlu(match.root().op) ? 1u << kOperandsName : 0;
  PatternNodes left = {static_cast<int8_t>(match.size - 1)};
  while (!left.empty()) {
    const int at = left.back();
    left.pop_back();
    const PatternNode& p = match.nodes[at];
    const bool is_root = at == match.size - 1;
    if (p.name >= 0) names |= 1u << p.name;
    // Below a comparison, a CAST or a LOAD there are other types; the root's own comparison is what
    // OperandType looks through.
    if (p.kind != Kind::kOp || !IsAlu(p.op) || (IsCompare(p.op) && !is_root)) continue;
    for (int i = p.op == Op::kWhere; i < p.source_count; ++i) left.push_back(p.source[i]);
  }
  return names;
}

bool AsksForTypesOnly(const Pattern& condition, int at, uint32_t names) {
  const PatternNode& p = condition.nodes[at];
  switch (p.kind) {
    case Kind::kIsInt:
    case Kind::kIsSigned:
    case Kind::kIsBool:
    case Kind::kIsFloat:
    case Kind::kIsScalar: {
      const int8_t name = condition.nodes[p.source[0]].name;
      return name >= 0 && (names >> name & 1);
    }
    case Kind::kBoth:
    case Kind::kEither:
      return AsksForTypesOnly(condition, p.source[0], names) &&
             AsksForTypesOnly(condition, p.source[1], names);
    case Kind::kNot: return AsksForTypesOnly(condition, p.source[0], names);
    default: return false;
  }
}

bool HoldsForTypes(const Pattern& condition, int at, int type_class) {
  const PatternNode& p = condition.nodes[at];
  const auto source = [&](int i) { return HoldsForTypes(condition, p.source[i], type_class); };
  const DType type = kTypeOfClass[type_class / 2];
  switch (p.kind) {
    case Kind::kIsInt: return IsInt(type);
    case Kind::kIsSigned: return IsSigned(type);
    case Kind::kIsBool: return IsBool(type);
    case Kind::kIsFloat: return IsFloat(type);
    case Kind::kIsScalar: return type_class % 2 == 0;
    case Kind::kBoth: return source(0) && source(1);
    case Kind::kEither: return source(0) || source(1);
    case Kind::kNot: return !source(0);
    default: OB_CHECK(false && "no question for types");
  }
}

}  // namespace outboard
