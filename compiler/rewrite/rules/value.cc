// Single values: constants, trivial operands, casts.
#include <bit>
#include <cmath>

#include "compiler/ir/accessors.h"
#include "compiler/ir/bounds.h"
#include "compiler/ir/build.h"
#include "compiler/rewrite/rules/fold.h"
#include "compiler/rewrite/rules/linear.h"
#include "compiler/rewrite/order.h"
#include "compiler/rewrite/rebuild.h"
#include "compiler/rewrite/rules/rules.h"

namespace outboard::rules {
namespace {

using namespace pattern;

// A value of an integer type whose bounds meet is that number.
const UOp* ByBounds(Graph& g, const Match& m) {
  const UOp* const root = m.root;
  if (root->vmin != root->vmax || !IsIntOrBool(root->dtype)) return nullptr;
  return IntLike(g, root->dtype, root->vmin, root);
}

const UOp* FoldConstants(Graph& g, const Match& m) {
  const UOp* const root = m.root;
  const UOp* const first = ConstantOf(root->src[0]);
  const UOp* const second = ConstantOf(root->src.back());
  if (!IsFloat(first->dtype)) {
    const auto value = FoldInt(root->op, first->dtype, first->int_value(), second->int_value());
    return value ? IntLike(g, root->dtype, *value, root) : nullptr;
  }
  const double a = first->float_value(), b = second->float_value();
  if (IsCompare(root->op)) return IntLike(g, DType::kBool, FoldFloatCompare(root->op, a, b), root);
  const auto value = FoldFloat(root->op, root->dtype, a, b);
  return value ? Full(g, ConstFloat(g, root->dtype, *value), root->shape) : nullptr;
}

const UOp* FoldCastOfConstant(Graph& g, const Match& m) {
  const UOp* const from = ConstantOf(m.root->src[0]);
  const auto bits = FoldCast(from->dtype, m.root->dtype, ConstantBits(from));
  return bits ? Full(g, g.MakeChecked(Op::kConst, m.root->dtype, {}, {*bits}), m.root->shape)
              : nullptr;
}

// Commutative operands in the order of CompareStructure, so constants on the right.
const UOp* OrderOperands(Graph& g, const Match& m) {
  const UOp *const a = m.root->src[0], *const b = m.root->src[1];
  return CompareStructure(a, b) > 0 ? Alu(g, m.root->op, b, a) : nullptr;
}

// The larger operand, where the bounds say which it is.
const UOp* MaxByBounds(Graph&, const Match& m) {
  const UOp *const a = m.root->src[0], *const b = m.root->src[1];
  if (!IsInt(a->dtype)) return nullptr;
  const ValueRange in_a = ValuesOf(*a), in_b = ValuesOf(*b);
  if (in_a.min >= in_b.max) return a;
  return in_b.min >= in_a.max ? b : nullptr;
}

// x / c is x * (1 / c) where 1 / c is exact: both round the same number once. A subnormal 1 / c
// would be exact too, but then c is huge and no program divides by it.
const UOp* DivideByPowerOfTwo(Graph& g, const Match& m) {
  const UOp* const c = ConstantOf(m[y]);
  if (c == nullptr || c->float_value() == 0 || !std::isfinite(c->float_value())) return nullptr;
  const double inverse = 1 / c->float_value();
  int exponent;
  if (std::abs(std::frexp(c->float_value(), &exponent)) != 0.5) return nullptr;
  if (!std::isnormal(inverse) || RoundTo(m.root->dtype, inverse) != inverse) return nullptr;
  return Mul(g, m[x], Full(g, ConstFloat(g, m.root->dtype, inverse), m.root->shape));
}

// ---- casts --------------------------------------------------------------------------------------

bool Holds(DType dtype, const UOp* value) { return IsInt(dtype) && HoldsAll(dtype, *value); }

// Bits of the significand, the hidden one included, and the exponents of normal numbers; for the
// types that hold each other.
struct FloatFormat {
  int digits = 0, min_exponent = 0, max_exponent = 0;
  bool infinity = true;
};
FloatFormat FormatOf(DType dtype) {
  switch (dtype) {
    case DType::kF8E4M3: return {4, -6, 8, false};
    case DType::kF8E5M2: return {3, -14, 15, true};
    case DType::kF16: return {11, -14, 15, true};
    case DType::kBF16: return {8, -126, 127, true};
    case DType::kF32: return {24, -126, 127, true};
    default: return {53, -1022, 1023, true};
  }
}

// Whether every value of `from` is one of `to`.
bool HoldsFloat(DType to, DType from) {
  const FloatFormat t = FormatOf(to), f = FormatOf(from);
  // Subnormals of `from` need exponents down to its least one less its digits.
  return to == from ||
         (t.digits >= f.digits && t.max_exponent >= f.max_exponent &&
          t.min_exponent - t.digits <= f.min_exponent - f.digits && (t.infinity || !f.infinity));
}

// CAST:T(CAST:M(x)) without the one in the middle.
const UOp* CastOfCast(Graph& g, const Match& m) {
  const UOp* const middle = m.root->src[0];
  const UOp* const inner = middle->src[0];
  const DType from = inner->dtype, by = middle->dtype, to = m.root->dtype;
  bool exact;
  if (IsFloat(from)) {
    exact = IsFloat(by) && HoldsFloat(by, from);
  } else if (IsFloat(by)) {
    // Numbers of at most `digits` bits stay what they are. Back from a float saturates where from
    // an integer wraps.
    const int64_t most = int64_t{1} << FormatOf(by).digits;
    const bool kept =
        IsBool(from) || (inner->vmin >= -most && inner->vmax <= most && ByteWidth(by) > 1 &&
                         (from != DType::kU64 || inner->vmin >= 0));
    exact = kept && !IsFloat(to) && (IsBool(to) || IsBool(from) || Holds(to, inner));
  } else if (IsBool(from)) {
    exact = true;
  } else if (IsBool(by)) {
    exact = false;
  } else if (IsFloat(to)) {
    // Narrow integers are cheaper to convert, so only a wider one in the middle goes.
    exact = ByteWidth(by) >= ByteWidth(from) && Holds(by, inner);
  } else {
    exact = Holds(by, inner) || (!IsBool(to) && ByteWidth(by) >= ByteWidth(to));
  }
  return exact ? Cast(g, inner, to) : nullptr;
}

// A wider type of an integer sum that cannot wrap is the sum of wider terms. So everything becomes
// i64.
const UOp* WidenSum(Graph& g, const Match& m) {
  const UOp* const x = m.root->src[0];
  const DType to = m.root->dtype;
  const bool arithmetic = x->op == Op::kAdd || x->op == Op::kMul || x->op == Op::kNeg ||
                          x->op == Op::kIDiv || x->op == Op::kMod || x->op == Op::kMax;
  if (!arithmetic || !IsInt(x->dtype) || !IsSigned(to) || !x->shape.empty()) return nullptr;
  if (ByteWidth(to) <= ByteWidth(x->dtype) || x->dtype == DType::kU64) return nullptr;
  const auto widened = [&](const UOp* a) { return Cast(g, a, to); };
  if (x->op == Op::kIDiv || x->op == Op::kMod || x->op == Op::kMax) {
    // The lowest number / -1 wraps in the narrow type only.
    const UOp *const a = x->src[0], *const b = x->src[1];
    const bool wraps = x->op == Op::kIDiv && IsSigned(x->dtype) && a->vmin == IntMin(x->dtype) &&
                       b->vmin <= -1 && b->vmax >= -1;
    return wraps ? nullptr : Alu(g, x->op, widened(a), widened(b));
  }
  if (x->op == Op::kMul && !x->src[1]->is_const() && !x->src[0]->is_const()) {
    // Bounds are the whole type where the product may wrap.
    if (x->vmin == IntMin(x->dtype) || x->vmax == IntMax(x->dtype)) return nullptr;
    return Mul(g, widened(x->src[0]), widened(x->src[1]));
  }
  const LinearSum sum = LinearOf(x);
  if (!IsExact(sum) || (sum.terms.size() == 1 && sum.terms[0].first == x)) return nullptr;
  LinearSum wide;
  wide.dtype = to;
  wide.constant = sum.constant;
  for (const auto& [term, coefficient] : sum.terms) AddTerm(wide, widened(term), coefficient);
  return FromLinear(g, wide);
}

// CAST and BITCAST to the type that is there already.
const UOp* SameType(Graph&, const Match& m) {
  return m.root->src[0]->dtype == m.root->dtype ? m.root->src[0] : nullptr;
}

// Through integers only: a float in the middle may lose the payload of a NaN.
const UOp* BitcastOfBitcast(Graph& g, const Match& m) {
  const UOp* const middle = m.root->src[0];
  return IsInt(middle->dtype) ? Bitcast(g, middle->src[0], m.root->dtype) : nullptr;
}

// clang-format off
constexpr Rule kRules[] = {
    // name               matches                     becomes                 when
    {"fold-neg",           -constant,                  FoldConstants},
    {"fold-sqrt",          sqrt(constant),             FoldConstants},
    {"fold-trunc",         trunc(constant),            FoldConstants},
    {"fold-add",           constant + constant,        FoldConstants},
    {"fold-mul",           constant * constant,        FoldConstants},
    {"fold-fdiv",          fdiv(constant, constant),   FoldConstants},
    {"fold-idiv",          constant / constant,        FoldConstants},
    {"fold-mod",           constant % constant,        FoldConstants},
    {"fold-max",           max(constant, constant),    FoldConstants},
    {"fold-less",          constant < constant,        FoldConstants},
    {"fold-unequal",       constant != constant,       FoldConstants},
    {"fold-equal",         constant == constant,       FoldConstants},
    {"fold-and",           constant & constant,        FoldConstants},
    {"fold-or",            constant | constant,        FoldConstants},
    {"fold-xor",           constant ^ constant,        FoldConstants},
    {"fold-shl",           constant << constant,       FoldConstants},
    {"fold-shr",           constant >> constant,       FoldConstants},
    {"fold-cast",          cast(constant),             FoldCastOfConstant},

    {"bounds-add",         any + any,                  ByBounds},
    {"bounds-mul",         any * any,                  ByBounds},
    {"bounds-neg",         -any,                       ByBounds},
    {"bounds-idiv",        any / any,                  ByBounds},
    {"bounds-mod",         any % any,                  ByBounds},
    {"bounds-max",         max(any, any),              ByBounds},
    {"bounds-less",        any < any,                  ByBounds},
    {"bounds-unequal",     any != any,                 ByBounds},
    {"bounds-equal",       any == any,                 ByBounds},
    {"bounds-and",         any & any,                  ByBounds},
    {"bounds-or",          any | any,                  ByBounds},
    {"bounds-shr",         any >> any,                 ByBounds},
    {"bounds-cast",        cast(any),                  ByBounds},
    {"bounds-where",       where(any, any, any),       ByBounds},

    // Integer sums are ordered by their terms (sum.cc), conditions by theirs (logic.cc).
    {"order-add",     any + any,     OrderOperands, !is_int(operands) || !is_scalar(operands)},
    {"order-mul",     any * any,     OrderOperands},
    {"order-max",     max(any, any), OrderOperands},
    {"order-unequal", any != any,    OrderOperands},
    {"order-equal",   any == any,    OrderOperands},
    {"order-and",     any & any,     OrderOperands, is_int(operands)},
    {"order-or",      any | any,     OrderOperands, is_int(operands)},
    {"order-xor",     any ^ any,     OrderOperands},

    // Not of floats: -0.0 + 0 is 0.
    {"add-zero",           x + 0,                      x,                      is_int(x)},
    {"add-minus-zero",     x + -0.0,                   x},
    // Not of floats: NaN * 0 is NaN.
    {"mul-zero",           x * 0,                      lit(0),                 is_int(x)},
    {"mul-one",            x * 1,                      x},
    {"mul-minus-one",      x * -1,                     -x,                     is_float(x)},
    {"neg-neg",            -(-x),                      x},
    {"fdiv-one",           fdiv(x, 1),                 x},
    {"fdiv-power-of-two",  fdiv(x, y),                 DivideByPowerOfTwo},
    {"trunc-trunc",        trunc(trunc(x)),            trunc(x)},
    {"max-itself",         max(x, x),                  x},
    {"max-by-bounds",      max(any, any),              MaxByBounds},
    {"max-consts",         max(max(x, c0), c1),        max(x, fold(max(c0, c1)))},
    {"and-zero",           x & 0,                      lit(0)},
    {"and-ones",           x & -1,                     x,                      is_int(x)},
    {"or-zero",            x | 0,                      x},
    {"or-ones",            x | -1,                     lit(-1),                is_int(x)},
    {"xor-zero",           x ^ 0,                      x},
    {"xor-itself",         x ^ x,                      lit(0)},
    {"and-itself",         x & x,                      x},
    {"or-itself",          x | x,                      x},
    {"and-consts",         (x & c0) & c1,              x & fold(c0 & c1)},
    {"or-consts",          (x | c0) | c1,              x | fold(c0 | c1)},
    {"xor-consts",         (x ^ c0) ^ c1,              x ^ fold(c0 ^ c1)},
    {"shl-zero",           x << 0,                     x},
    {"shr-zero",           x >> 0,                     x},
    {"less-than-itself",   x < x,                      lit(0)},  // also for NaN
    {"equal-to-itself",    x == x,                     lit(1),                 !is_float(x)},
    {"unequal-to-itself",  x != x,                     lit(0),                 !is_float(x)},

    {"cast-cast",          cast(cast(any)),            CastOfCast},
    {"widen-sum",          cast(any),                  WidenSum},
    {"cast-nothing",       cast(any),                  SameType},
    {"bitcast-nothing",    bitcast(any),               SameType},
    {"bitcast-bitcast",    bitcast(bitcast(any)),      BitcastOfBitcast},
};
// clang-format on

}  // namespace

std::span<const Rule> Value() { return kRules; }

}  // namespace outboard::rules
