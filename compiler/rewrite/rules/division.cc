// Division and remainder by a constant c > 0.
//
// Both truncate, and for n >= 0 that is the same as rounding down, where n = c * q + r gives
// floor(n / c) = q + floor(r / c) and n mod c = r mod c whatever the sign of q. So the numerator is
// written as a sum and taken apart, provided that it is not negative and that the sum cannot wrap
// (IsExact); where c divides everything the sign does not matter.
#include <algorithm>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <optional>
#include <vector>

#include "compiler/ir/build.h"
#include "compiler/rewrite/rules/linear.h"
#include "compiler/rewrite/rules/rules.h"

namespace outboard::rules {
namespace {

using namespace pattern;

__int128 FloorDiv(__int128 a, __int128 b) {
  const __int128 q = a / b;
  return q - (a % b != 0 && a < 0);
}

// n = divisor * quotient + rest, with 0 <= rest.
struct Split {
  LinearSum quotient, rest;
  WideBounds rest_bounds;
};

// Takes out the terms that `divisor` divides. Of the constant so much is left in `rest` that its
// least value is not negative, and no more. nullopt where that does not fit.
std::optional<Split> SplitBy(const LinearSum& n, int64_t divisor) {
  Split split;
  split.quotient.dtype = split.rest.dtype = n.dtype;
  for (const auto& [term, coefficient] : n.terms) {
    if (coefficient % divisor == 0)
      split.quotient.terms.emplace_back(term, coefficient / divisor);
    else
      split.rest.terms.emplace_back(term, coefficient);
  }
  const __int128 least = BoundsOfSum(split.rest).min;
  // The smallest k that is n.constant modulo the divisor and at least -least.
  const __int128 whole = FloorDiv(least + n.constant, divisor);
  const __int128 left = n.constant - whole * divisor;
  if (left < IntMin(DType::kI64) || left > IntMax(DType::kI64) || whole < IntMin(DType::kI64) ||
      whole > IntMax(DType::kI64))
    return std::nullopt;
  split.rest.constant = static_cast<int64_t>(left);
  split.quotient.constant = static_cast<int64_t>(whole);
  split.rest_bounds = BoundsOfSum(split.rest);
  if (split.rest_bounds.max > IntMax(n.dtype)) return std::nullopt;
  return split;
}

// The numbers above 1 by which some terms and the divisor can be divided, largest first.
std::vector<int64_t> CommonFactors(const LinearSum& n, int64_t divisor) {
  std::vector<int64_t> factors;
  for (const auto& [term, coefficient] : n.terms) {
    const int64_t factor = std::gcd(coefficient, divisor);
    if (factor > 1 && factor < divisor) factors.push_back(factor);
  }
  std::sort(factors.begin(), factors.end(), std::greater<>());
  factors.erase(std::unique(factors.begin(), factors.end()), factors.end());
  return factors;
}

bool DividesAll(const LinearSum& n, int64_t divisor) {
  return n.constant % divisor == 0 &&
         std::all_of(n.terms.begin(), n.terms.end(),
                     [=](const auto& term) { return term.second % divisor == 0; });
}

LinearSum DividedBy(LinearSum n, int64_t divisor) {
  n.constant /= divisor;
  for (auto& term : n.terms) term.second /= divisor;
  return n;
}

// The numerator as a sum that is equal to it in the integers.
std::optional<LinearSum> Numerator(const UOp* n) {
  if (!n->shape.empty()) return std::nullopt;
  LinearSum sum = LinearOf(n);
  if (IsExact(sum)) return sum;
  sum = AsTerm(n);
  if (IsExact(sum)) return sum;
  return std::nullopt;  // u64 of unknown size
}

const UOp* Divide(Graph& g, DType dtype, const UOp* n, int64_t c) {
  return Alu(g, Op::kIDiv, n, ConstInt(g, dtype, c));
}
const UOp* Remainder(Graph& g, DType dtype, const UOp* n, int64_t c) {
  return Alu(g, Op::kMod, n, ConstInt(g, dtype, c));
}

const UOp* DivideSum(Graph& g, const Match& m) {
  const UOp* const numerator = m[x];
  const DType dtype = m.root->dtype;
  const int64_t c = m[c0]->int_value();
  const std::optional<LinearSum> n = Numerator(numerator);
  if (c <= 1 || !n) return nullptr;
  if (DividesAll(*n, c)) return FromLinear(g, DividedBy(*n, c));
  int64_t common = std::gcd(c, n->constant);
  for (const auto& [term, coefficient] : n->terms) common = std::gcd(common, coefficient);
  if (common > 1) return Divide(g, dtype, FromLinear(g, DividedBy(*n, common)), c / common);
  if (numerator->vmin < 0 && BoundsOfSum(*n).min < 0) return nullptr;

  const std::optional<Split> split = SplitBy(*n, c);
  if (!split) return nullptr;
  if (!split->quotient.terms.empty() || split->quotient.constant != 0) {
    LinearSum result = split->quotient;
    if (split->rest_bounds.max >= c)
      AddTerm(result, Divide(g, dtype, FromLinear(g, split->rest), c), 1);
    return FromLinear(g, result);
  }
  // In two steps, if the first one leaves no rest: (6a + b) / 12 is a / 2 for b in [0, 6).
  for (const int64_t factor : CommonFactors(*n, c)) {
    const std::optional<Split> first = SplitBy(*n, factor);
    if (first && first->rest_bounds.max < factor)
      return Divide(g, dtype, FromLinear(g, first->quotient), c / factor);
  }
  return nullptr;
}

// sum += factor * other in the integers; false where a number would wrap.
bool AddInIntegers(LinearSum& sum, const LinearSum& other, int64_t factor) {
  const int64_t most = int64_t{1} << (8 * ByteWidth(sum.dtype) - 2);
  const auto small = [&](__int128 value) { return value > -most && value < most; };
  __int128 reach = 0;
  for (const auto& [term, coefficient] : sum.terms)
    reach = std::max<__int128>(reach, std::abs(coefficient));
  for (const auto& [term, coefficient] : other.terms)
    if (!small(static_cast<__int128>(coefficient) * factor) || !small(reach)) return false;
  if (!small(static_cast<__int128>(other.constant) * factor) || !small(sum.constant)) return false;
  AddScaled(sum, other, factor);
  return true;
}

const UOp* RemainderOfSum(Graph& g, const Match& m) {
  const UOp* const numerator = m[x];
  const DType dtype = m.root->dtype;
  const int64_t c = m[c0]->int_value();
  const std::optional<LinearSum> n = Numerator(numerator);
  if (c <= 1 || !n) return nullptr;
  if (numerator->vmin > -c && numerator->vmax < c) return numerator;
  if (DividesAll(*n, c)) return ConstInt(g, dtype, 0);
  int64_t common = std::gcd(c, n->constant);
  for (const auto& [term, coefficient] : n->terms) common = std::gcd(common, coefficient);
  if (common > 1)
    return Mul(g, Remainder(g, dtype, FromLinear(g, DividedBy(*n, common)), c / common),
               ConstInt(g, dtype, common));
  if (numerator->vmin < 0 && BoundsOfSum(*n).min < 0) return nullptr;

  LinearSum smaller;  // the same modulo c
  smaller.dtype = dtype;
  smaller.constant = n->constant;
  bool known = true;
  for (const auto& [term, coefficient] : n->terms) {
    // (y % (c * d)) % c is y % c.
    const bool nested = term->op == Op::kMod && term->src[1]->is_const() &&
                        term->src[1]->int_value() > 0 && term->src[1]->int_value() % c == 0;
    std::optional<LinearSum> inner;
    if (nested) inner = Numerator(term->src[0]);
    known = known && AddInIntegers(smaller, inner ? *inner : AsTerm(term), coefficient % c);
  }
  if (!known) smaller = *n;
  for (const LinearSum& candidate : {smaller, *n}) {
    const std::optional<Split> split = SplitBy(candidate, c);
    if (!split || !IsExact(split->rest)) continue;
    const UOp* const rest = FromLinear(g, split->rest);
    if (split->rest_bounds.max < c) return rest;
    if (rest != numerator) return Remainder(g, dtype, rest, c);
  }
  // (6a + b) % 12 is (a % 2) * 6 + b for b in [0, 6).
  for (const int64_t factor : CommonFactors(*n, c)) {
    const std::optional<Split> first = SplitBy(*n, factor);
    if (!first || first->rest_bounds.max >= factor) continue;
    LinearSum result = first->rest;
    AddTerm(result, Remainder(g, dtype, FromLinear(g, first->quotient), c / factor), factor);
    return FromLinear(g, result);
  }
  return nullptr;
}

// clang-format off
constexpr Pattern kBothPositive = c0 > 0 && c1 > 0;
constexpr Pattern kNegative = is_signed(x) && c0 < 0 && fits(-c0);
constexpr Pattern kInside = c0 > high(x) && -c0 < low(x) && (is_signed(x) || not_negative(x));
constexpr Pattern kFitsTogether = kBothPositive && fits(c0 * c1);
constexpr Pattern kDivides = kBothPositive && divides(c1, c0);
constexpr Pattern kJoins =
    kBothPositive && c2 > 0 && not_negative(x) && fits(x + c0 * c1) && fits(c0 * c2);

constexpr Rule kRules[] = {
    // name             matches              becomes                               when
    {"div-by-zero",     x / 0,              lit(0)},
    {"mod-by-zero",     x % 0,              x},
    {"div-by-one",      x / 1,              x},
    {"mod-by-one",      x % 1,              lit(0)},
    {"zero-div",        lit(0) / x,         lit(0)},
    {"zero-mod",        lit(0) % x,         lit(0)},
    {"mod-itself",      x % x,              lit(0)},
    {"div-by-negative", x / c0,             -(x / fold(-c0)),                    kNegative},
    {"mod-by-negative", x % c0,             x % fold(-c0),                       kNegative},
    {"mod-of-small",    x % c0,             x,                                   kInside},
    {"div-of-div",      (x / c0) / c1,      x / fold(c0 * c1),                   kFitsTogether},
    {"div-of-div-sum",  (x / c0 + c1) / c2, (x + fold(c0 * c1)) / fold(c0 * c2), kJoins},
    {"mod-of-mod",      (x % c0) % c1,      x % c1,                              kDivides},
    {"div-of-mod",      (x % c0) / c1,      (x / c1) % fold(c0 / c1),            kDivides},
    {"div-sum",         x / c0,             DivideSum,                           c0 > 1},
    {"mod-sum",         x % c0,             RemainderOfSum,                      c0 > 1},
};
// clang-format on

}  // namespace

std::span<const Rule> Division() { return kRules; }

}  // namespace outboard::rules
