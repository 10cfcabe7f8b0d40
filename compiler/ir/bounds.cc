#include "compiler/ir/bounds.h"

#include <algorithm>
#include <bit>
#include <initializer_list>
#include <limits>

#include "compiler/ir/uop.h"

namespace outboard {
namespace {

constexpr Wide kTurn = static_cast<Wide>(1) << 64;  // how many values a u64 has

Wide Least(DType dtype) { return IntMin(dtype); }
Wide Most(DType dtype) { return dtype == DType::kU64 ? kTurn - 1 : IntMax(dtype); }

ValueRange WholeType(DType dtype) { return {Least(dtype), Most(dtype)}; }

// [min, max] if the type holds it, else the whole type, since the operation may wrap. Sums of u64
// that wrap as often for the least as for the greatest are told too: x + (2^64 - 1) is x - 1. For
// narrower types they are not, so that bounds within the type say that nothing wrapped.
ValueRange Fit(DType dtype, Wide min, Wide max) {
  if (dtype == DType::kU64) {
    const Wide turns = min >= 0 ? min / kTurn : -((kTurn - 1 - min) / kTurn);
    min -= turns * kTurn;
    max -= turns * kTurn;
  }
  if (min < Least(dtype) || max > Most(dtype)) return WholeType(dtype);
  return {min, max};
}

ValueRange OfCorners(DType dtype, std::initializer_list<Wide> corners) {
  return Fit(dtype, std::min(corners), std::max(corners));
}

ValueRange Multiply(DType dtype, ValueRange a, ValueRange b) {
  // Two factors of 64 bits, and only two of u64 have them, might not fit a Wide.
  const Wide factor_max = kTurn / 2;
  if (a.max > factor_max && b.max > factor_max) return WholeType(dtype);
  return OfCorners(dtype, {a.min * b.min, a.min * b.max, a.max * b.min, a.max * b.max});
}

ValueRange Compare(Op op, DType operands, ValueRange a, ValueRange b) {
  if (IsFloat(operands)) return {0, 1};
  const bool disjoint = a.max < b.min || b.max < a.min;
  const bool same_constant = a.min == a.max && b.min == b.max && a.min == b.min;
  switch (op) {
    case Op::kCmpLt: return {a.max < b.min, a.min < b.max};
    case Op::kCmpNe: return {disjoint, !same_constant};
    default: return {same_constant, !disjoint};
  }
}

ValueRange Divide(DType dtype, ValueRange a, ValueRange b) {
  if (b.min > 0 || b.max < 0)
    return OfCorners(dtype, {a.min / b.min, a.min / b.max, a.max / b.min, a.max / b.max});
  // x / 0 is 0, and |x / y| <= |x|; -x may wrap at the lowest value.
  if (b.min >= 0) return {std::min<Wide>(a.min, 0), std::max<Wide>(a.max, 0)};
  const Wide reach = std::max<Wide>({-a.min, a.max, 0});
  return Fit(dtype, -reach, reach);
}

ValueRange Remainder(ValueRange a, ValueRange b) {
  // x % 0 is x; the result is never further from zero than x.
  if (b.min <= 0) return {std::min<Wide>(a.min, 0), std::max<Wide>(a.max, 0)};
  const Wide reach = b.max - 1;
  if (a.min >= 0 && a.max < b.min) return a;
  return {a.min >= 0 ? 0 : std::max(a.min, -reach), a.max <= 0 ? 0 : std::min(a.max, reach)};
}

ValueRange Shift(Op op, DType dtype, ValueRange a, ValueRange b) {
  const Wide width = 8 * ByteWidth(dtype);
  if (b.min == b.max && b.min >= 0 && b.min < width) {
    const auto by = static_cast<int>(b.min);
    if (op == Op::kShr) return {a.min >> by, a.max >> by};
    // Of the type's limits, so that nothing overflows; what is beyond wraps.
    const bool fits = a.max <= Most(dtype) >> by && a.min >= Least(dtype) >> by;
    return fits ? ValueRange{a.min << by, a.max << by} : WholeType(dtype);
  }
  // Whatever the amount, zeros come in at the top.
  return op == Op::kShr && a.min >= 0 ? ValueRange{0, a.max} : WholeType(dtype);
}

// The greatest number of as many bits as `value` has.
Wide AllBitsOf(Wide value) {
  return (static_cast<Wide>(1) << std::bit_width(static_cast<uint64_t>(value))) - 1;
}

ValueRange Bitwise(Op op, DType dtype, ValueRange a, ValueRange b) {
  if (op == Op::kAnd) {
    if (a.min < 0 && b.min < 0) return WholeType(dtype);
    if (a.min < 0) return {0, b.max};
    return {dtype == DType::kBool ? a.min & b.min : 0, b.min < 0 ? a.max : std::min(a.max, b.max)};
  }
  if (a.min < 0 || b.min < 0) return WholeType(dtype);
  return {op == Op::kOr ? std::max(a.min, b.min) : 0, AllBitsOf(std::max(a.max, b.max))};
}

ValueRange Cast(DType to, ValueRange from) {
  if (IsBool(to)) return {from.min > 0 || from.max < 0, from.min != 0 || from.max != 0};
  return Fit(to, from.min, from.max);
}

ValueRange Hull(ValueRange a, ValueRange b) {
  return {std::min(a.min, b.min), std::max(a.max, b.max)};
}

ValueRange RangeOfNode(const UOp& node) {
  const auto source = [&](int i) { return ValuesOf(*node.src[i]); };
  switch (node.op) {
    case Op::kConst: {
      const Wide value = node.dtype == DType::kU64
                             ? static_cast<Wide>(static_cast<uint64_t>(node.arg[0]))
                             : static_cast<Wide>(node.arg[0]);
      return {value, value};
    }
    case Op::kVar: return {node.arg[1], node.arg[2]};
    case Op::kIota: return {0, std::max<int64_t>(node.arg_dim(0).max() - 1, 0)};
    case Op::kRange: return {0, std::max<int64_t>(node.arg[1] - 1, 0)};
    case Op::kReshape:
    case Op::kPermute:
    case Op::kExpand:
    case Op::kShrink:
    case Op::kFlip:
    case Op::kContiguous:
    case Op::kDetach:
    case Op::kLayout:
    case Op::kUnshard:
    case Op::kAllToAll:
    case Op::kCopy: return source(0);
    case Op::kPad: return Hull(source(0), {0, 0});
    case Op::kAssign: return source(1);
    case Op::kNeg: return Fit(node.dtype, -source(0).max, -source(0).min);
    case Op::kAdd: {
      const ValueRange a = source(0), b = source(1);
      return Fit(node.dtype, a.min + b.min, a.max + b.max);
    }
    case Op::kMul: return Multiply(node.dtype, source(0), source(1));
    case Op::kMax: {
      const ValueRange a = source(0), b = source(1);
      return {std::max(a.min, b.min), std::max(a.max, b.max)};
    }
    case Op::kIDiv: return Divide(node.dtype, source(0), source(1));
    case Op::kMod: return Remainder(source(0), source(1));
    case Op::kCmpLt:
    case Op::kCmpNe:
    case Op::kCmpEq: return Compare(node.op, node.src[0]->dtype, source(0), source(1));
    case Op::kAnd:
    case Op::kOr:
    case Op::kXor: return Bitwise(node.op, node.dtype, source(0), source(1));
    case Op::kShl:
    case Op::kShr: return Shift(node.op, node.dtype, source(0), source(1));
    case Op::kWhere: {
      const ValueRange condition = source(0);
      if (condition.min == 1) return source(1);
      return condition.max == 0 ? source(2) : Hull(source(1), source(2));
    }
    case Op::kCast:
      return IsFloat(node.src[0]->dtype) ? WholeType(node.dtype) : Cast(node.dtype, source(0));
    default: return WholeType(node.dtype);
  }
}

}  // namespace

ValueRange ValuesOf(const UOp& node) {
  if (node.dtype != DType::kU64 || node.vmin >= 0) return {node.vmin, node.vmax};
  if (node.vmax < 0) return {kTurn + node.vmin, kTurn + node.vmax};
  return WholeType(DType::kU64);
}

bool HoldsAll(DType dtype, const UOp& node) {
  const ValueRange values = ValuesOf(node);
  return values.min >= Least(dtype) && values.max <= Most(dtype);
}

Bounds BoundsOfNode(const UOp& node) {
  if (node.dtype == DType::kVoid || IsFloat(node.dtype)) return {0, 0};
  ValueRange range = RangeOfNode(node);
  if (range.min > IntMax(DType::kI64)) {  // of u64, and so is what follows
    range = {range.min - kTurn, range.max - kTurn};
  } else if (range.max > IntMax(DType::kI64)) {
    range = {IntMin(DType::kI64), IntMax(DType::kI64)};
  }
  return {static_cast<int64_t>(range.min), static_cast<int64_t>(range.max)};
}

}  // namespace outboard
