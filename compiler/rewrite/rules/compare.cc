// Comparisons of integers, as the sign of a sum.
//
// a < b is sum < limit for the sum of all terms of a - b and the number on the other side, computed
// in the integers, which the terms' bounds must allow (IsExact). a == b is the same question modulo
// 2^width, where nothing needs to be exact until something is divided.
#include <cstdlib>
#include <numeric>
#include <optional>

#include "compiler/ir/build.h"
#include "compiler/rewrite/rules/linear.h"
#include "compiler/rewrite/rules/rules.h"

namespace outboard::rules {
namespace {

using namespace pattern;
using Wide = __int128;

Wide FloorDiv(Wide a, Wide b) {
  const Wide q = a / b;
  return q - (a % b != 0 && (a < 0) != (b < 0));
}

bool InType(DType dtype, Wide value) { return value >= IntMin(dtype) && value <= IntMax(dtype); }

// sum < limit or sum == limit, in the integers if `exact`, else modulo 2^width.
struct Comparison {
  LinearSum sum;  // its constant is 0
  Wide limit = 0;
  bool exact = true;
};

// The value as a sum that is equal to it in the integers; itself as one term where need be.
LinearSum ExactSum(const UOp* node) {
  LinearSum sum = LinearOf(node);
  return IsExact(sum) ? sum : AsTerm(node);
}

// Coefficients that can be added and negated without leaving the type.
bool HasSmallCoefficients(const LinearSum& sum) {
  const Wide most = Wide{1} << (8 * ByteWidth(sum.dtype) - 2);
  for (const auto& [term, coefficient] : sum.terms)
    if (coefficient >= most || coefficient <= -most) return false;
  return true;
}

// a - b in the integers.
std::optional<Comparison> Difference(const LinearSum& a, const LinearSum& b) {
  if (!HasSmallCoefficients(a) || !HasSmallCoefficients(b)) return std::nullopt;
  Comparison c;
  c.sum = a;
  c.sum.constant = 0;
  for (const auto& [term, coefficient] : b.terms) AddTerm(c.sum, term, -coefficient);
  c.limit = static_cast<Wide>(b.constant) - a.constant;
  return c;
}

void DivideTerms(LinearSum& sum, int64_t by) {
  for (auto& term : sum.terms) term.second /= by;
}

int64_t CommonDivisor(const LinearSum& sum) {
  int64_t common = 0;
  for (const auto& [term, coefficient] : sum.terms) common = std::gcd(common, coefficient);
  return common;
}

void Negate(LinearSum& sum) {
  for (auto& term : sum.terms) term.second = -term.second;
}

// An index that was cast to a narrower type only to be compared is compared as it is. nullptr where
// a term is anything else.
const UOp* WithoutCasts(Graph& g, Op op, const Comparison& c) {
  if (c.sum.dtype == DType::kI64 || c.sum.terms.empty()) return nullptr;
  LinearSum wide;
  for (const auto& [term, coefficient] : c.sum.terms) {
    const UOp* const inner = term->op == Op::kCast ? term->src[0] : nullptr;
    if (inner == nullptr || inner->dtype != DType::kI64) return nullptr;
    if (!InType(term->dtype, inner->vmin) || !InType(term->dtype, inner->vmax)) return nullptr;
    AddTerm(wide, inner, coefficient);
  }
  if (!IsExact(wide) || !InType(DType::kI64, c.limit)) return nullptr;
  return Alu(g, op, FromLinear(g, wide), ConstIndex(g, static_cast<int64_t>(c.limit)));
}

// Divisors of some of the terms, to take the others out: c * q + r < limit is q < (limit - r) / c
// rounded up, if that is the same number for every r.
bool DropRest(Comparison& c) {
  for (const auto& [unused, coefficient] : c.sum.terms) {
    const int64_t divisor = std::abs(coefficient);
    if (divisor <= 1) continue;
    LinearSum quotient, rest;
    quotient.dtype = rest.dtype = c.sum.dtype;
    for (const auto& [term, k] : c.sum.terms) {
      if (k % divisor == 0)
        quotient.terms.emplace_back(term, k / divisor);
      else
        rest.terms.emplace_back(term, k);
    }
    const WideBounds bounds = BoundsOfSum(rest);
    const Wide most = FloorDiv(c.limit - 1 - bounds.min, divisor);
    if (most != FloorDiv(c.limit - 1 - bounds.max, divisor)) continue;
    c.sum = quotient;
    c.limit = most + 1;
    return true;
  }
  return false;
}

// x / d < limit without the division, for d > 0: the quotient rounds towards zero.
bool DropQuotient(Comparison& c) {
  if (c.sum.terms.size() != 1 || std::abs(c.sum.terms[0].second) != 1) return false;
  const UOp* const term = c.sum.terms[0].first;
  if (term->op != Op::kIDiv || !term->src[1]->is_const() || term->src[1]->int_value() <= 0)
    return false;
  if (!InType(DType::kI64, c.limit)) return false;
  const Wide d = term->src[1]->int_value();
  const bool negative = c.sum.terms[0].second < 0;
  // For -(x / d) < limit: x / d > -limit, which is x / d >= 1 - limit, which is not x / d < 1 -
  // limit.
  const Wide limit = negative ? 1 - c.limit : c.limit;
  const Wide x_limit = limit > 0 ? limit * d : (limit - 1) * d + 1;
  const LinearSum x = ExactSum(term->src[0]);
  if (!InType(DType::kI64, x_limit) || !IsExact(x) || !HasSmallCoefficients(x)) return false;
  c.sum = x;
  c.sum.constant = 0;
  c.limit = x_limit - x.constant;
  if (negative) {
    Negate(c.sum);
    c.limit = 1 - c.limit;
  }
  return true;
}

bool IsDifferenceOfTwo(const LinearSum& sum) {
  return sum.terms.size() == 2 && std::abs(sum.terms[0].second) == 1 &&
         sum.terms[0].second == -sum.terms[1].second;
}

const UOp* Boolean(Graph& g, bool value) { return ConstInt(g, DType::kBool, value); }

const UOp* Number(Graph& g, DType dtype, Wide value) {
  return ConstInt(g, dtype, static_cast<int64_t>(value));
}

const UOp* Less(Graph& g, const Match& m) {
  const LinearSum left = ExactSum(m.root->src[0]), right = ExactSum(m.root->src[1]);
  if (!IsExact(left) || !IsExact(right)) return nullptr;  // u64 of unknown size
  std::optional<Comparison> c = Difference(left, right);
  if (!c) return nullptr;
  if (const UOp* wide = WithoutCasts(g, Op::kCmpLt, *c)) return wide;
  do {
    if (c->sum.terms.empty()) return Boolean(g, 0 < c->limit);
    const int64_t common = CommonDivisor(c->sum);
    DivideTerms(c->sum, common);
    c->limit = FloorDiv(c->limit - 1, common) + 1;
  } while (DropRest(*c) || DropQuotient(*c));

  const WideBounds bounds = BoundsOfSum(c->sum);
  if (bounds.max < c->limit) return Boolean(g, true);
  if (bounds.min >= c->limit) return Boolean(g, false);
  const DType dtype = c->sum.dtype;
  const bool reversed = c->sum.terms[0].second < 0;
  const auto& terms = c->sum.terms;
  if (IsDifferenceOfTwo(c->sum) && c->limit == 0)
    return Alu(g, Op::kCmpLt, terms[reversed].first, terms[!reversed].first);
  if (reversed) {  // sum < limit is -limit < -sum
    Negate(c->sum);
    c->limit = -c->limit;
  }
  if (!IsExact(c->sum) || !InType(dtype, c->limit)) return nullptr;
  const UOp* const sum = FromLinear(g, c->sum);
  const UOp* const limit = Number(g, dtype, c->limit);
  return reversed ? Alu(g, Op::kCmpLt, limit, sum) : Alu(g, Op::kCmpLt, sum, limit);
}

// Equality where a side may wrap: only moves terms.
const UOp* EqualModulo(Graph& g, const UOp* root) {
  LinearSum sum = LinearOf(root->src[0]);
  AddScaled(sum, LinearOf(root->src[1]), -1);
  const bool equal = root->op == Op::kCmpEq;
  if (sum.terms.empty()) return Boolean(g, (sum.constant == 0) == equal);
  LinearSum other;
  other.dtype = sum.dtype;
  AddScaled(other, sum, -1);
  if (other.terms[0].second < 0)
    other = sum;  // the lowest number is its own negative: then either will do
  if (IsDifferenceOfTwo(other) && other.constant == 0)
    return Alu(g, root->op, other.terms[0].first, other.terms[1].first);
  LinearSum limit;
  limit.dtype = sum.dtype;
  limit.constant = other.constant;
  other.constant = 0;
  LinearSum negated;
  negated.dtype = sum.dtype;
  AddScaled(negated, limit, -1);
  return Alu(g, root->op, FromLinear(g, other), FromLinear(g, negated));
}

const UOp* Equal(Graph& g, const Match& m) {
  const UOp* const root = m.root;
  const LinearSum left = LinearOf(root->src[0]), right = LinearOf(root->src[1]);
  std::optional<Comparison> c;
  if (IsExact(left) && IsExact(right)) c = Difference(left, right);
  if (!c) return EqualModulo(g, root);
  if (const UOp* wide = WithoutCasts(g, root->op, *c)) return wide;
  const bool equal = root->op == Op::kCmpEq;
  if (c->sum.terms.empty()) return Boolean(g, (c->limit == 0) == equal);
  const int64_t common = CommonDivisor(c->sum);
  if (c->limit % common != 0) return Boolean(g, !equal);
  DivideTerms(c->sum, common);
  c->limit /= common;
  const WideBounds bounds = BoundsOfSum(c->sum);
  if (c->limit < bounds.min || c->limit > bounds.max) return Boolean(g, !equal);
  if (c->sum.terms[0].second < 0) {
    Negate(c->sum);
    c->limit = -c->limit;
  }
  if (IsDifferenceOfTwo(c->sum) && c->limit == 0)
    return Alu(g, root->op, c->sum.terms[0].first, c->sum.terms[1].first);
  // Modulo 2^width the sum may wrap; it still equals the limit where the difference is within one
  // turn.
  if (!IsExact(c->sum) || !InType(c->sum.dtype, c->limit)) return EqualModulo(g, root);
  return Alu(g, root->op, FromLinear(g, c->sum), Number(g, c->sum.dtype, c->limit));
}

constexpr Pattern kIndices = is_int(operands) && is_scalar(operands);

// clang-format off
constexpr Rule kRules[] = {
    // name               matches                 becomes                  when
    {"less",              any < any,              Less,                    kIndices},
    {"equal",             any == any,             Equal,                   kIndices},
    {"not-equal",         any != any,             Equal,                   kIndices},
};
// clang-format on

}  // namespace

std::span<const Rule> Compare() { return kRules; }

}  // namespace outboard::rules
