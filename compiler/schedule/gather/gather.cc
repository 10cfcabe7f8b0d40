#include "compiler/schedule/gather/gather.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "base/check.h"
#include "compiler/ir/accessors.h"
#include "compiler/ir/build.h"
#include "compiler/ir/expr.h"
#include "compiler/rewrite/rules/linear.h"
#include "compiler/rewrite/simplify.h"
#include "compiler/rewrite/substitute.h"
#include "compiler/schedule/guard.h"

namespace outboard::schedule {
namespace {

// The sum with the range replaced by its multiple over the factor, which needs no division; nullptr
// where the range is not in it, or not by multiples of the factor.
const UOp* InMultiples(Graph& g, const UOp* sum, const Solution& solution) {
  if (sum->dtype != DType::kI64 || solution.factor == 1) return nullptr;
  LinearSum linear = LinearOf(sum);
  int64_t times = 0;
  for (auto& [term, coefficient] : linear.terms) {
    if (term == solution.range)
      times = std::exchange(coefficient, 0);
    else if (DependsOn(term, solution.range))
      return nullptr;
  }
  if (times == 0 || times % solution.factor != 0) return nullptr;
  AddTerm(linear, solution.multiple, times / solution.factor);
  return Simplify(g, FromLinear(g, linear));
}

// That of the two with fewer terms, as where other ranges cancel; `alternative` may be nullptr.
const UOp* Shorter(Graph& g, const UOp* sum, const UOp* alternative) {
  if (alternative == nullptr) return sum;
  const size_t terms = LinearOf(Simplify(g, sum)).terms.size();
  return LinearOf(alternative).terms.size() < terms ? alternative : sum;
}

// `value` with `solution.range` replaced. A load that depended on the range is made only where the
// guard holds.
const UOp* Apply(Graph& g, const UOp* value, const Solution& solution) {
  return Substitute(
      g, value, {{solution.range, solution.value}}, [&](const UOp* node, Sources src) {
        if (node->op == Op::kIndex || node->op == Op::kCmpLt || node->op == Op::kCmpEq) {
          std::vector<const UOp*> shorter(src.begin(), src.end());
          for (size_t i = 0; i < shorter.size(); ++i)
            shorter[i] = Shorter(g, shorter[i], InMultiples(g, node->src[i], solution));
          return g.MakeChecked(node->op, node->dtype, shorter, node->arg);
        }
        if (node->op != Op::kLoad || solution.guard == nullptr)
          return g.MakeChecked(node->op, node->dtype, src, node->arg);
        const bool gated = src.size() > 1;
        const UOp* const gate = AndGuards(g, gated ? src[1] : nullptr, solution.guard);
        const UOp* const otherwise = gated ? src[2] : ConstOf(g, node->dtype, 0);
        return g.MakeChecked(Op::kLoad, node->dtype, {src[0], gate, otherwise});
      });
}

// The same in the wrapping arithmetic of the equation's type: range == rest has one solution there,
// also where the sum that `rest` is could wrap. The range itself must fit the type.
std::optional<Solution> SolveWrapping(Graph& g, const UOp* left, const UOp* right,
                                      const std::vector<const UOp*>& ranges) {
  const DType dtype = left->dtype;
  const UOp* const minus = ConstOf(g, dtype, -1);
  const LinearSum linear = LinearOf(Simplify(g, Add(g, left, Mul(g, right, minus))));
  for (const auto& [term, coefficient] : linear.terms) {
    if (term->op != Op::kCast || coefficient * coefficient != 1) continue;
    const UOp* const range = term->src[0];
    if (std::find(ranges.begin(), ranges.end(), range) == ranges.end()) continue;
    if (RangeOf(range).extent() - 1 > IntMax(dtype)) continue;
    LinearSum rest;
    rest.dtype = dtype;
    bool once = true;
    for (const auto& [other, factor] : linear.terms)
      if (other != term) {
        once = once && !DependsOn(other, range);
        rest.terms.emplace_back(other, WrapTo(dtype, -coefficient * factor));
      }
    if (!once) continue;
    rest.constant = WrapTo(dtype, -coefficient * linear.constant);
    const UOp* const value = Simplify(g, Cast(g, FromLinear(g, rest), DType::kI64));
    return Solution{range, value, InRange(g, value, RangeOf(range).extent())};
  }
  return std::nullopt;
}

// How much shorter the loops are without a range. A factor leaves a remainder to be checked in each
// iteration, and an address that is no multiple of anything.
double Worth(const UOp* range, int64_t factor) {
  return static_cast<double>(RangeOf(range).extent()) / (std::abs(factor) == 1 ? 1 : 2);
}

}  // namespace

std::optional<Solution> SolveEquality(Graph& graph, const UOp* left, const UOp* right,
                                      const std::vector<const UOp*>& ranges) {
  if (!IsInt(left->dtype) || left->dtype == DType::kU64) return std::nullopt;
  const auto as_index = [&](const UOp* x) { return Simplify(graph, Cast(graph, x, DType::kI64)); };
  const UOp* const difference = Simplify(
      graph, Add(graph, as_index(left), Mul(graph, as_index(right), ConstIndex(graph, -1))));
  // The difference itself must not wrap, or a second solution could hide.
  if (difference->vmin == IntMin(DType::kI64) && difference->vmax == IntMax(DType::kI64))
    return std::nullopt;
  const LinearSum linear = LinearOf(difference);

  const UOp* best = nullptr;
  int64_t factor = 0;
  for (const auto& [term, coefficient] : linear.terms) {
    if (coefficient == 0 || std::find(ranges.begin(), ranges.end(), term) == ranges.end()) continue;
    if (best == nullptr || Worth(term, coefficient) > Worth(best, factor)) {
      best = term;
      factor = coefficient;
    }
  }
  if (best == nullptr)
    return IsSigned(left->dtype) && left->dtype != DType::kI64
               ? SolveWrapping(graph, left, right, ranges)
               : std::nullopt;

  LinearSum rest;  // -(difference without the range), so that factor * range == rest
  rest.constant = -linear.constant;
  for (const auto& [term, coefficient] : linear.terms) {
    if (term == best) continue;
    if (DependsOn(term, best)) return std::nullopt;
    rest.terms.emplace_back(term, -coefficient);
  }
  if (factor < 0) {
    rest.constant = -rest.constant;
    for (auto& term : rest.terms) term.second = -term.second;
    factor = -factor;
  }
  const UOp* const multiple = FromLinear(graph, rest);
  Expr scaled(graph, multiple);
  const UOp* guard = nullptr;
  if (factor > 1) {
    // Divided above 0 if possible, where rules take quotients of sums apart. Between -factor and 0
    // the quotient truncates to 0, but then the remainder is not 0.
    constexpr int64_t kFar = int64_t{1} << 40;
    const int64_t least = scaled.node()->vmin;
    const int64_t below = least < 0 && least > -kFar && scaled.node()->vmax < kFar
                              ? (factor - 1 - least) / factor
                              : 0;
    scaled = scaled + below * factor;
    guard = (scaled % factor == 0).node();
    scaled = scaled / factor - below;
  }
  const UOp* const value = Simplify(graph, scaled.node());
  guard = AndGuards(graph, guard, InRange(graph, value, RangeOf(best).extent()));
  if (guard != nullptr) guard = Simplify(graph, guard);
  if (guard != nullptr && guard->IsIntConst(1)) guard = nullptr;
  return Solution{best, value, guard, multiple, factor};
}

const UOp* MakeSum(Graph& graph, const UOp* value, std::vector<const UOp*> ranges) {
  const UOp* const zero = ConstOf(graph, value->dtype, 0);
  // The conditions around the term, outermost first, taken off by turns with the sums between them.
  std::vector<const UOp*> gates;
  while (true) {
    if (value->op == Op::kWhere && IsZero(value->src[2])) {
      AppendConditions(value->src[0], gates);
      value = value->src[1];
    } else if (value->op == Op::kReduceLoop && ReduceOf(value).op() == Op::kAdd) {
      ranges.insert(ranges.end(), value->src.begin() + 1, value->src.end());
      value = value->src[0];
    } else {
      break;
    }
  }
  for (size_t i = 0; i < gates.size();) {
    const UOp* const gate = gates[i];
    std::optional<Solution> solution;
    if (gate->op == Op::kCmpEq) solution = SolveEquality(graph, gate->src[0], gate->src[1], ranges);
    if (!solution) {
      ++i;
      continue;
    }
    ranges.erase(std::find(ranges.begin(), ranges.end(), solution->range));
    gates.erase(gates.begin() + i);
    value = Apply(graph, value, *solution);
    for (const UOp*& g : gates) g = Apply(graph, g, *solution);
    if (solution->guard != nullptr) AppendConditions(solution->guard, gates);
    i = 0;  // a substituted gate may have become solvable
  }
  const UOp* gate = nullptr;
  for (const UOp* g : gates) gate = AndGuards(graph, gate, g);
  if (gate != nullptr) value = Where(graph, gate, value, zero);
  value = Simplify(graph, value);
  if (ranges.empty()) return value;
  std::vector<const UOp*> src = {value};
  src.insert(src.end(), ranges.begin(), ranges.end());
  return graph.MakeChecked(Op::kReduceLoop, DType::kVoid, src, {static_cast<int64_t>(Op::kAdd)});
}

}  // namespace outboard::schedule
