#include "compiler/proof/prover.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "compiler/ir/accessors.h"

namespace outboard::proof {
namespace {

// Calls within calls: deeper than any index that a movement makes, and nothing to a stack. Below, a
// node is taken as any value of its type.
constexpr int kDepthMax = 256;
constexpr int kNestingMax = 3;
constexpr size_t kFactsMax = 32;
constexpr int kFactsUsedMax = 6;
// Of one search. A range is asked for often, always costs all its steps, and rarely takes more
// facts than these; the last try searches it as far as a proof.
constexpr int64_t kStepsOfProof = 4'000;
constexpr int64_t kStepsOfRange = 2'000;
constexpr int kFactsOfRange = 2;
constexpr Wide kUnbounded = Wide{1} << 126;

struct Deeper {
  explicit Deeper(int* depth) : depth(depth) { ++*depth; }
  ~Deeper() { --*depth; }
  int* depth;
};

Interval OfType(DType dtype) {
  if (dtype == DType::kBool) return {0, 1};
  if (dtype == DType::kU64) return {0, std::numeric_limits<uint64_t>::max()};
  return {IntMin(dtype), IntMax(dtype)};
}

bool IsWhole(DType dtype) { return IsInt(dtype) || IsBool(dtype); }

Wide ValueOf(const UOp* constant) {
  if (constant->dtype == DType::kU64) return static_cast<uint64_t>(constant->int_value());
  return constant->int_value();
}

Wide Magnitude(Wide x) { return x < 0 ? -x : x; }

// The number that `form` always is.
std::optional<Wide> NumberOf(const LinearForm& form) {
  if (form.terms.empty()) return form.constant;
  return std::nullopt;
}

Interval Within(Interval interval, DType dtype) {
  const Interval type = OfType(dtype);
  return interval.min >= type.min && interval.max <= type.max ? interval : type;
}

// The part of `interval` that x % c can be: with s a divisor of c and of all factors of x, both
// have the same remainder by s. Multiples of 8 have no remainder by 128 above 120.
Interval Congruent(Interval interval, const LinearForm& x, int64_t c) {
  int64_t s = c;
  for (const Term& term : x.terms) s = std::gcd(s, static_cast<int64_t>(term.factor % c));
  const auto above = [&](Wide place) { return ((x.constant % s - place) % s + s) % s; };
  return {interval.min + above(interval.min), interval.max - (s - above(interval.max)) % s};
}

}  // namespace

void Prover::AddFact(const std::optional<LinearForm>& never_negative) {
  if (!never_negative || facts_.size() >= kFactsMax) return;
  budget_->Pay(terms_of_facts_ + facts_.size() * never_negative->terms.size());
  const bool known = std::any_of(facts_.begin(), facts_.end(), [&](const LinearForm& fact) {
    const auto difference = AddScaled(fact, *never_negative, -1);
    return difference && difference->terms.empty() && difference->constant == 0;
  });
  if (known) return;
  if (Range(*never_negative).max < 0) contradiction_ = true;
  if (never_negative->terms.empty()) return;
  facts_.push_back(*never_negative);
  terms_of_facts_ += never_negative->terms.size();
}

void Prover::Assume(const UOp* condition, bool holds) {
  struct Comparison {
    const UOp* node;
    bool holds;
  };
  std::vector<Comparison> open = {{condition, holds}}, comparisons;
  while (!open.empty() && comparisons.size() < kFactsMax && budget_->Step()) {
    const auto [node, is_true] = open.back();
    open.pop_back();
    if (!IsBool(node->dtype) || node->src.size() != 2) continue;
    const UOp *const a = node->src[0], *const b = node->src[1];
    const bool negates = (node->op == Op::kXor || node->op == Op::kCmpNe) && IsBool(a->dtype);
    if (node->op == (is_true ? Op::kAnd : Op::kOr)) {
      open.push_back({b, is_true});
      open.push_back({a, is_true});
    } else if (negates && (a->is_const() || b->is_const())) {
      const UOp *const constant = a->is_const() ? a : b, *const other = a->is_const() ? b : a;
      open.push_back({other, (constant->int_value() != 0) != is_true});
    } else if (IsCompare(node->op) && IsWhole(a->dtype)) {
      comparisons.push_back({node, is_true});
    }
  }
  // First as they are in general; then again, since what may wrap in general may not wrap where the
  // others hold.
  for (int round = 0; round < 2; ++round) {
    std::vector<std::optional<LinearForm>> found;
    for (const auto& [node, is_true] : comparisons) {
      const LinearForm left = FormOf(node->src[0]), right = FormOf(node->src[1]);
      const auto gap = AddScaled(right, left, -1), excess = AddScaled(left, right, -1);
      if (!gap || !excess) continue;
      if (node->op == Op::kCmpLt) {
        found.push_back(is_true ? AddScaled(*gap, Constant(1), -1) : excess);
      } else if ((node->op == Op::kCmpEq) == is_true) {
        found.insert(found.end(), {gap, excess});
      }
    }
    for (const auto& fact : found) AddFact(fact);
    forms_.clear();
    intervals_.clear();
  }
}

LinearForm Prover::FormOf(const UOp* node) {
  if (const auto found = forms_.find(node); found != forms_.end()) return found->second;
  const Deeper deeper(&depth_);
  LinearForm form = depth_ <= kDepthMax && budget_->Step() ? ComputeForm(node) : Atom(node);
  budget_->Pay(1 + form.terms.size());
  forms_[node] = form;
  return form;
}

LinearForm Prover::ComputeForm(const UOp* node) {
  const auto source = [&](int i) { return FormOf(node->src[i]); };
  std::optional<LinearForm> form;
  switch (node->op) {
    case Op::kConst:
      if (IsWhole(node->dtype)) return Constant(ValueOf(node));
      break;
    case Op::kAdd:
      if (IsInt(node->dtype)) form = Joined(AddScaled(source(0), source(1), 1));
      break;
    case Op::kNeg:
      if (IsInt(node->dtype)) form = AddScaled(Constant(0), source(0), -1);
      break;
    case Op::kMul:
      if (IsInt(node->dtype)) {
        const LinearForm a = source(0), b = source(1);
        if (const auto number = NumberOf(b)) {
          form = AddScaled(Constant(0), a, *number);
        } else if (const auto first = NumberOf(a)) {
          form = AddScaled(Constant(0), b, *first);
        }
      }
      break;
    case Op::kShl:
      if (IsInt(node->dtype)) {
        const auto by = NumberOf(source(1));
        if (by && *by >= 0 && *by < 63) form = AddScaled(Constant(0), source(0), Wide{1} << *by);
      }
      break;
    case Op::kCast:
      if (IsInt(node->dtype) && IsWhole(node->src[0]->dtype)) form = source(0);
      break;
    case Op::kMod: {  // x % c is x where 0 <= x < c
      const LinearForm x = source(0);
      const auto c = NumberOf(source(1));
      if (c && NeverNegative(x)) {
        const auto below = AddScaled(Constant(*c - 1), x, -1);
        if (below && NeverNegative(*below)) form = x;
      }
      if (!form) return Atom(AtomOfDivision(node));
      break;
    }
    case Op::kIDiv: return Atom(AtomOfDivision(node));
    default: break;
  }
  return form && Fits(*form, node->dtype) ? *form : Atom(node);
}

// With k times x % c and k c times x / c, the form has k times x. Each remainder that is looked at
// is a step of the budget.
std::optional<LinearForm> Prover::Joined(std::optional<LinearForm> form) {
  if (how_ != Divisions::kJoined || !form) return form;
  absl::flat_hash_map<size_t, Term> quotients;
  for (const Term& term : form->terms)
    if (term.atom->op == Op::kIDiv)
      if (const auto found = number_of_division_.find(term.atom);
          found != number_of_division_.end())
        quotients.emplace(found->second, term);
  if (quotients.empty()) return form;
  for (const Term& remainder : std::vector<Term>(form->terms)) {
    const UOp* const m = remainder.atom;
    if (m->op != Op::kMod) continue;
    if (!budget_->Step()) break;
    budget_->Pay(form->terms.size());
    const auto division = number_of_division_.find(m);
    if (division == number_of_division_.end()) continue;
    const auto quotient = quotients.find(division->second);
    const auto divisor = NumberOf(FormOf(m->src[1]));
    Wide of_quotient = 0;
    if (quotient == quotients.end() || !divisor ||
        __builtin_mul_overflow(remainder.factor, *divisor, &of_quotient) ||
        quotient->second.factor != of_quotient)
      continue;
    auto joined = AddScaled(*form, Atom(m), -remainder.factor);
    if (joined) joined = AddScaled(*joined, Atom(quotient->second.atom), -of_quotient);
    if (joined) joined = AddScaled(*joined, FormOf(m->src[0]), remainder.factor);
    if (joined) form = std::move(joined);
  }
  return form;
}

// The node itself, or the first one of its kind whose dividend has the same form.
const UOp* Prover::AtomOfDivision(const UOp* node) {
  if (how_ == Divisions::kAtoms || !IsInt(node->dtype)) return node;
  const LinearForm dividend = FormOf(node->src[0]);
  const auto divisor = NumberOf(FormOf(node->src[1]));
  if (!divisor || *divisor <= 0 || *divisor > INT32_MAX) return node;
  const auto [found, added] = division_of_.try_emplace(
      std::pair(dividend, static_cast<int64_t>(*divisor)), divisions_.size());
  if (added) divisions_.emplace_back();
  const size_t number = found->second;
  const UOp*& first =
      node->op == Op::kIDiv ? divisions_[number].quotient : divisions_[number].remainder;
  if (first == nullptr) first = node;
  const UOp* const atom = first;
  number_of_division_[atom] = number;
  const Division division = divisions_[number];  // a copy: facts may have divisions of their own
  AddDivisionFacts(division, dividend, *divisor, /*bounds=*/node->op == Op::kIDiv);
  return atom;
}

// With q = x / c and m = x % c: x = c q + m, and c q <= x < c (q + 1) if x is never negative. A
// condition on x then says something of q and m. Without conditions, intervals say as much.
void Prover::AddDivisionFacts(Division division, const LinearForm& x, Wide c, bool bounds) {
  if (facts_.empty() || division.quotient == nullptr) return;
  const auto rest = AddScaled(x, Atom(division.quotient), -c);
  if (!rest) return;
  if (bounds && NeverNegative(x)) {
    AddFact(rest);
    AddFact(AddScaled(Constant(c - 1), *rest, -1));
  }
  if (division.remainder == nullptr) return;
  const auto zero = AddScaled(*rest, Atom(division.remainder), -1);
  AddFact(zero);
  if (zero) AddFact(AddScaled(Constant(0), *zero, -1));
}

bool Prover::Fits(const LinearForm& form, DType dtype) {
  const Interval type = OfType(dtype);
  const auto above = AddScaled(form, Constant(type.min), -1);
  const auto below = AddScaled(Constant(type.max), form, -1);
  return above && below && NeverNegative(*above) && NeverNegative(*below);
}

Interval Prover::IntervalOf(const UOp* atom) {
  if (const auto found = intervals_.find(atom); found != intervals_.end()) return found->second;
  // Until it is known: what its own computation may ask for.
  intervals_[atom] = OfType(atom->dtype);
  const Deeper deeper(&depth_);
  const Interval interval =
      depth_ <= kDepthMax && budget_->Step() ? ComputeInterval(atom) : OfType(atom->dtype);
  return intervals_[atom] = interval;
}

Interval Prover::ComputeInterval(const UOp* atom) {
  const Interval whole = OfType(atom->dtype);
  const auto source = [&](int i) { return Range(FormOf(atom->src[i])); };
  switch (atom->op) {
    case Op::kRange: return {0, Wide{RangeOf(atom).extent()} - 1};
    case Op::kVar: return {VarOf(atom).min(), VarOf(atom).max()};  // checked when it is bound
    case Op::kIDiv:
    case Op::kMod: return IntervalOfQuotient(atom);
    case Op::kMul: {
      const Interval a = source(0), b = source(1);
      const Interval type = OfType(DType::kI64);  // corners of wider ones could overflow
      if (a.min < type.min || a.max > type.max || b.min < type.min || b.max > type.max)
        return whole;
      const Wide corners[] = {a.min * b.min, a.min * b.max, a.max * b.min, a.max * b.max};
      return Within(
          {*std::min_element(corners, corners + 4), *std::max_element(corners, corners + 4)},
          atom->dtype);
    }
    case Op::kMax: {
      if (!IsWhole(atom->dtype)) return whole;
      const Interval a = source(0), b = source(1);
      return {std::max(a.min, b.min), std::max(a.max, b.max)};
    }
    case Op::kAnd: {
      const Interval a = source(0), b = source(1);
      if (a.min < 0 && b.min < 0) return whole;
      // A number that is not negative has no bits that the result could gain.
      return {0, a.min < 0 ? b.max : b.min < 0 ? a.max : std::min(a.max, b.max)};
    }
    case Op::kShr: {
      const Interval a = source(0), by = source(1);
      if (by.min != by.max || by.min < 0 || by.min >= 8 * ByteWidth(atom->dtype)) return whole;
      return {a.min >> by.min, a.max >> by.min};
    }
    case Op::kWhere: return IntervalOfWhere(atom);
    case Op::kReduceLoop: {
      if (!IsWhole(atom->dtype)) return whole;
      const Interval each = source(0);
      if (each.min > each.max || ReduceOf(atom).op() == Op::kMul) return whole;
      Wide count = 1;
      for (const UOp* range : ReduceOf(atom).ranges())
        if (const Wide extent = RangeOf(range).extent();
            extent == 0 || __builtin_mul_overflow(count, extent, &count))
          return whole;
      if (ReduceOf(atom).op() == Op::kMax) return each;
      Interval sum;
      if (__builtin_mul_overflow(each.min, count, &sum.min) ||
          __builtin_mul_overflow(each.max, count, &sum.max))
        return whole;
      return Within(sum, atom->dtype);
    }
    default: return whole;  // LOAD, comparisons, what wraps
  }
}

Interval Prover::IntervalOfQuotient(const UOp* node) {
  const Interval whole = OfType(node->dtype);
  const LinearForm dividend = FormOf(node->src[0]);
  const Interval x = Range(dividend), y = Range(FormOf(node->src[1]));
  if (node->op == Op::kMod) {  // the sign of x, and no further from 0 than x; x % 0 is x
    Interval result = {std::min<Wide>(x.min, 0), std::max<Wide>(x.max, 0)};
    if (y.min > 0) {
      result.min = std::max(result.min, 1 - y.max);
      result.max = std::min(result.max, y.max - 1);
    }
    if (y.min == y.max && y.min > 0 && y.min <= INT32_MAX)
      result = Congruent(result, dividend, static_cast<int64_t>(y.min));
    return result;
  }
  if (y.min <= 0) return whole;
  // Towards zero, so monotone in x; in y it moves towards zero.
  const Wide ends[] = {x.min / y.min, x.min / y.max, x.max / y.min, x.max / y.max};
  return {*std::min_element(ends, ends + 4), *std::max_element(ends, ends + 4)};
}

Interval Prover::IntervalOfWhere(const UOp* where) {
  if (!IsWhole(where->dtype)) return OfType(where->dtype);
  Interval sides[2];
  for (const bool holds : {true, false}) {
    const UOp* const value = where->src[holds ? 1 : 2];
    if (nesting_ < kNestingMax) {
      Prover inner(*this, where->src[0], holds);
      sides[holds] = inner.Range(inner.FormOf(value));
    } else {
      sides[holds] = Range(FormOf(value));
    }
  }
  return Within({std::min(sides[0].min, sides[1].min), std::max(sides[0].max, sides[1].max)},
                where->dtype);
}

bool Prover::NeverNegative(const LinearForm& form) {
  return LowerBound(form, 0, kStepsOfProof) >= 0;
}

Interval Prover::Range(const LinearForm& form) {
  const Wide min = LowerBound(form, kUnbounded, kStepsOfRange);
  const auto negated = AddScaled(Constant(0), form, -1);
  return {min, negated ? -LowerBound(*negated, kUnbounded, kStepsOfRange) : kUnbounded};
}

// With more and more facts: the fewer a proof takes, the sooner it is found.
Wide Prover::LowerBound(const LinearForm& form, Wide enough, int64_t steps_max) {
  Wide bound = -kUnbounded;
  int64_t steps = 0, all_steps = 0;
  const bool is_last_try = how_ == Divisions::kRelated;
  const int facts_max = enough < kUnbounded || is_last_try ? kFactsUsedMax : kFactsOfRange;
  const int64_t outer_stop = stop_;
  stop_ = is_last_try ? 0 : std::max<int64_t>(0, budget_->steps - steps_max);
  for (int facts = 0; facts <= facts_max && all_steps <= steps_max; ++facts) {
    const int64_t before = budget_->steps, steps_with_less = steps;
    bound = std::max(bound, LowerBoundBy(form, enough, facts, 0));
    steps = before - budget_->steps;
    all_steps += steps;
    if (bound >= enough || (facts > 0 && steps == steps_with_less)) break;
  }
  stop_ = outer_stop;
  return bound;
}

Wide Prover::LowerBoundBy(const LinearForm& form, Wide enough, int facts, uint64_t used) {
  if (contradiction_) return kUnbounded;
  budget_->Pay(1 + form.terms.size() + (facts == 0 ? 0 : terms_of_facts_));
  Wide bound = form.constant;
  bool fits = true;
  for (const Term& term : form.terms) {
    const Interval interval = IntervalOf(term.atom);
    Wide product = 0;
    fits = fits &&
           !__builtin_mul_overflow(term.factor, term.factor > 0 ? interval.min : interval.max,
                                   &product) &&
           !__builtin_add_overflow(bound, product, &bound);
  }
  if (!fits) bound = -kUnbounded;
  if (bound >= enough || facts == 0) return bound;
  // s * form = (s * form - m * fact) + m * fact, and the last part is at least 0 for every m >= 0.
  // An m that takes an atom away leaves less to be unfavourable; s > 1 where its factor is no
  // multiple of the fact's.
  for (size_t f = 0; f < facts_.size(); ++f) {
    if (used >> f & 1) continue;
    Wide tried = 0;
    for (const Term& term : facts_[f].terms) {
      const Wide factor = form.FactorOf(term.atom);
      if (factor == 0 || (factor > 0) != (term.factor > 0)) continue;
      const Wide multiple = factor / term.factor;
      if (multiple > 0 && multiple != tried && --budget_->steps > stop_) {
        tried = multiple;
        if (const auto rest = AddScaled(form, facts_[f], -multiple))
          bound = std::max(bound, LowerBoundBy(*rest, enough, facts - 1, used | uint64_t{1} << f));
        if (bound >= enough) return bound;
      }
      if (factor % term.factor != 0 && --budget_->steps > stop_) {
        const ScaledBy by = {f, factor, term.factor};
        bound = std::max(bound, ScaledLowerBound(form, by, enough, facts, used));
        if (bound >= enough) return bound;
      }
    }
  }
  return bound;
}

// By s * form - m * fact, in which the atom that has these factors is not.
Wide Prover::ScaledLowerBound(const LinearForm& form, const ScaledBy& by, Wide enough, int facts,
                              uint64_t used) {
  constexpr Wide kFactorMax = INT32_MAX;
  const Wide a = Magnitude(by.factor), b = Magnitude(by.fact_factor);
  if (a > kFactorMax || b > kFactorMax) return -kUnbounded;
  const auto common = std::gcd(static_cast<int64_t>(a), static_cast<int64_t>(b));
  const Wide scale = b / common;
  const auto scaled = AddScaled(Constant(0), form, scale);
  const auto rest = scaled ? AddScaled(*scaled, facts_[by.fact], -(a / common)) : std::nullopt;
  if (!rest) return -kUnbounded;
  const Wide wanted = enough > kUnbounded / scale ? kUnbounded : enough * scale;
  const Wide least = LowerBoundBy(*rest, wanted, facts - 1, used | uint64_t{1} << by.fact);
  if (least >= kUnbounded || least <= -kUnbounded) return least;
  return least / scale + (least % scale > 0 ? 1 : 0);  // rounded up
}

}  // namespace outboard::proof
