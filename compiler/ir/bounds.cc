#include "compiler/ir/bounds.h"

#include <algorithm>
#include <initializer_list>
#include <limits>

#include "compiler/ir/uop.h"

namespace outboard {
namespace {

using Wide = __int128;

Bounds WholeType(DType dtype) {
  if (dtype == DType::kU64)
    return {std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()};
  return {IntMin(dtype), IntMax(dtype)};
}

// [min, max] if the type holds it, else the whole type, since the operation may wrap.
Bounds Fit(DType dtype, Wide min, Wide max) {
  const Wide low = IntMin(dtype), high = IntMax(dtype);
  if (min < low || max > high) return WholeType(dtype);
  return {static_cast<int64_t>(min), static_cast<int64_t>(max)};
}

Bounds OfCorners(DType dtype, std::initializer_list<Wide> corners) {
  return Fit(dtype, std::min(corners), std::max(corners));
}

Bounds Compare(const UOp& node) {
  const UOp &a = *node.src[0], &b = *node.src[1];
  if (IsFloat(a.dtype) || a.dtype == DType::kU64) return {0, 1};
  const bool disjoint = a.vmax < b.vmin || b.vmax < a.vmin;
  const bool same_constant = a.vmin == a.vmax && b.vmin == b.vmax && a.vmin == b.vmin;
  switch (node.op) {
    case Op::kCmpLt: return {a.vmax < b.vmin, a.vmin < b.vmax};
    case Op::kCmpNe: return {disjoint, !same_constant};
    default: return {same_constant, !disjoint};
  }
}

Bounds Divide(const UOp& node) {
  const UOp &a = *node.src[0], &b = *node.src[1];
  if (node.dtype == DType::kU64) return WholeType(node.dtype);
  if (node.op == Op::kIDiv) {
    if (b.vmin <= 0 &&
        b.vmax >= 0) {  // x / 0 is 0, and |x / y| <= |x|; -x may wrap at the lowest value
      const Wide reach = std::max<Wide>(-static_cast<Wide>(a.vmin), a.vmax);
      return Fit(node.dtype, b.vmin < 0 ? -std::max<Wide>(reach, 0) : std::min<Wide>(a.vmin, 0),
                 std::max<Wide>(reach, 0));
    }
    const Wide a0 = a.vmin, a1 = a.vmax, b0 = b.vmin, b1 = b.vmax;
    return OfCorners(node.dtype, {a0 / b0, a0 / b1, a1 / b0, a1 / b1});
  }
  if (b.vmin <= 0) {  // x % 0 is x; the result is never further from zero than x
    return Fit(node.dtype, std::min<Wide>(a.vmin, 0), std::max<Wide>(a.vmax, 0));
  }
  const int64_t reach = b.vmax - 1;
  if (a.vmin >= 0 && a.vmax < b.vmin) return {a.vmin, a.vmax};
  return {a.vmin >= 0 ? 0 : std::max(a.vmin, -reach), a.vmax <= 0 ? 0 : std::min(a.vmax, reach)};
}

Bounds Shift(const UOp& node) {
  const UOp &a = *node.src[0], &b = *node.src[1];
  if (node.dtype == DType::kU64 || b.vmin != b.vmax || b.vmin < 0 ||
      b.vmin >= 8 * ByteWidth(node.dtype))
    return WholeType(node.dtype);
  if (node.op == Op::kShr) return {a.vmin >> b.vmin, a.vmax >> b.vmin};
  return Fit(node.dtype, static_cast<Wide>(a.vmin) << b.vmin, static_cast<Wide>(a.vmax) << b.vmin);
}

Bounds Bitwise(const UOp& node) {
  const UOp &a = *node.src[0], &b = *node.src[1];
  if (node.dtype == DType::kBool) {
    if (node.op == Op::kAnd) return {a.vmin & b.vmin, a.vmax & b.vmax};
    if (node.op == Op::kOr) return {a.vmin | b.vmin, a.vmax | b.vmax};
    return {0, 1};
  }
  if (node.op == Op::kAnd && a.vmin >= 0 && b.vmin >= 0) return {0, std::min(a.vmax, b.vmax)};
  return WholeType(node.dtype);
}

}  // namespace

Bounds BoundsOfNode(const UOp& node) {
  if (node.dtype == DType::kVoid || IsFloat(node.dtype)) return {0, 0};
  const auto bounds = [&](int i) { return Bounds{node.src[i]->vmin, node.src[i]->vmax}; };
  switch (node.op) {
    case Op::kConst: return {node.arg[0], node.arg[0]};
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
    case Op::kShard:
    case Op::kUnshard:
    case Op::kCopy: return bounds(0);
    case Op::kPad:
      return {std::min<int64_t>(node.src[0]->vmin, 0), std::max<int64_t>(node.src[0]->vmax, 0)};
    case Op::kAssign: return bounds(1);
    case Op::kNeg:
      if (node.dtype == DType::kU64) return WholeType(node.dtype);
      return Fit(node.dtype, -static_cast<Wide>(node.src[0]->vmax),
                 -static_cast<Wide>(node.src[0]->vmin));
    case Op::kAdd: {
      if (node.dtype == DType::kU64) return WholeType(node.dtype);
      const Bounds a = bounds(0), b = bounds(1);
      return Fit(node.dtype, static_cast<Wide>(a.min) + b.min, static_cast<Wide>(a.max) + b.max);
    }
    case Op::kMul: {
      if (node.dtype == DType::kU64) return WholeType(node.dtype);
      const Wide a0 = node.src[0]->vmin, a1 = node.src[0]->vmax, b0 = node.src[1]->vmin,
                 b1 = node.src[1]->vmax;
      return OfCorners(node.dtype, {a0 * b0, a0 * b1, a1 * b0, a1 * b1});
    }
    case Op::kMax: {
      if (node.dtype == DType::kU64) return WholeType(node.dtype);
      const Bounds a = bounds(0), b = bounds(1);
      return {std::max(a.min, b.min), std::max(a.max, b.max)};
    }
    case Op::kIDiv:
    case Op::kMod: return Divide(node);
    case Op::kCmpLt:
    case Op::kCmpNe:
    case Op::kCmpEq: return Compare(node);
    case Op::kAnd:
    case Op::kOr:
    case Op::kXor: return Bitwise(node);
    case Op::kShl:
    case Op::kShr: return Shift(node);
    case Op::kWhere: {
      const Bounds condition = bounds(0), a = bounds(1), b = bounds(2);
      if (condition.min == 1) return a;
      if (condition.max == 0) return b;
      return {std::min(a.min, b.min), std::max(a.max, b.max)};
    }
    case Op::kCast: {
      const DType from = node.src[0]->dtype;
      if (IsFloat(from) || from == DType::kU64) return WholeType(node.dtype);
      if (IsBool(node.dtype)) return {0, 1};
      return Fit(node.dtype, node.src[0]->vmin, node.src[0]->vmax);
    }
    default: return WholeType(node.dtype);
  }
}

}  // namespace outboard
