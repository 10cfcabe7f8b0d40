#include "compiler/optimize/operands/visible.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "compiler/ir/accessors.h"
#include "compiler/ir/build.h"
#include "compiler/kernel/affine.h"
#include "compiler/optimize/operands/online.h"
#include "compiler/rewrite/simplify.h"
#include "compiler/rewrite/substitute.h"

namespace outboard::codegen {
namespace {

// Numbers of a form are below it, so that no sum of them wraps.
constexpr int64_t kNumberMax = int64_t{1} << 40;
// Steps that are run beyond the last visible one, at most.
constexpr int64_t kMultipleMax = 64;
// Conditions that are tried: each costs a rewrite of the kernel.
constexpr size_t kConditionsMax = 16;
// Factors of a term that are looked at: each costs a rewrite of it.
constexpr size_t kFactorsMax = 64;

// A condition, in the end a comparison, that hides a step where its value is `value`.
struct Hides {
  const UOp* comparison = nullptr;
  bool value = false;
};

bool IsLowest(const UOp* node) {
  return node->op == Op::kConst && IsFloat(node->dtype) && node->float_value() < 0 &&
         std::isinf(node->float_value());
}

class Finder {
 public:
  Finder(const LoopNest& kernel, const LoopPlan& plan, VarsOfSteps vars)
      : kernel_(kernel), graph_(*kernel.graph), plan_(plan), vars_(vars) {}

  VisibleSteps Run() {
    if (!FindLoop()) return {};
    for (const ReduceGroup& group : kernel_.groups) {
      if (std::find(group.ranges.begin(), group.ranges.end(), range_) == group.ranges.end())
        continue;
      if (group.ranges.size() > 1) return {};
      for (const UOp* node : group.nodes) reductions_.push_back(node);
    }
    max_of_ = ExponentialsOf(kernel_, range_);
    VisibleSteps visible{.range = range_, .multiple = multiple_};
    for (const Hides& hides : Conditions()) Try(hides, visible);
    if (visible.first.empty() && visible.last.empty()) return {};
    return visible;
  }

 private:
  // The one loop of all panels, which the same rows read.
  bool FindLoop() {
    RangeSet deps = 0;
    for (const Panel& panel : plan_.panels) {
      const RangeSet own = kernel_.DepsOf(panel.value);
      if (deps != 0 && own != deps) return false;
      deps = own;
      range_ = panel.tile.range;
      multiple_ = std::lcm(multiple_, panel.tile.step);
      if (multiple_ > kMultipleMax) return false;
    }
    if (plan_.online.range == range_) multiple_ = plan_.online.block;
    return vars_ == VarsOfSteps::kMayHide || kernel_.ranges[range_].end() == nullptr;
  }

  // Comparisons that decide WHEREs of the terms, alone or joined with others.
  std::vector<Hides> Conditions() const {
    std::vector<const UOp*> roots;
    for (const UOp* node : reductions_) roots.push_back(node->src[0]);
    std::vector<Hides> found;
    absl::flat_hash_set<std::pair<const UOp*, bool>> seen;
    for (const UOp* node : PostOrder(roots)) {
      if (node->op != Op::kWhere || !IsFloat(node->dtype)) continue;
      std::vector<Hides> stack = {{node->src[0], true}, {node->src[0], false}};
      while (!stack.empty() && found.size() < kConditionsMax) {
        const auto [condition, value] = stack.back();
        stack.pop_back();
        if (!seen.insert({condition, value}).second) continue;
        if (condition->op == (value ? Op::kOr : Op::kAnd)) {
          for (const UOp* part : condition->src) stack.push_back({part, value});
        } else if (const UOp* const opposite = NegatedBy(condition)) {
          stack.push_back({opposite, !value});
        } else if (condition->op == Op::kCmpLt && condition->src[0]->dtype == DType::kI64 &&
                   std::none_of(found.begin(), found.end(), [&](const Hides& h) {
                     return h.comparison == condition && h.value == value;
                   })) {
          found.push_back({condition, value});
        }
      }
    }
    return found;
  }

  // What the condition is the opposite of; nullptr if it is not written so.
  static const UOp* NegatedBy(const UOp* condition) {
    if (condition->op != Op::kXor && condition->op != Op::kCmpNe && condition->op != Op::kCmpEq)
      return nullptr;
    const UOp *const x = condition->src[0], *const constant = condition->src[1];
    if (!IsBool(x->dtype) || !constant->is_const()) return nullptr;
    return (constant->int_value() != 0) == (condition->op != Op::kCmpEq) ? x : nullptr;
  }

  void Try(const Hides& hides, VisibleSteps& visible) {
    RowForm bound;
    bool ends = false;
    if (!BoundOf(hides, bound, ends)) return;
    std::vector<const UOp*> guards;
    const UOp* const value = ConstInt(graph_, DType::kBool, hides.value ? 1 : 0);
    for (const UOp* node : reductions_)
      if (!IsNeutral(node, {{hides.comparison, value}}, guards)) return;
    (ends ? visible.last : visible.first).push_back(std::move(bound));
    for (const UOp* guard : guards)
      if (std::find(visible.guards.begin(), visible.guards.end(), guard) == visible.guards.end())
        visible.guards.push_back(guard);
  }

  // The last visible step, or the first one, as a form of the row.
  bool BoundOf(const Hides& hides, RowForm& bound, bool& ends) {
    bound.comparison = hides.comparison;
    bound.hides = hides.value;
    // Hidden where form < 0.
    const Affine left = forms_.Of(hides.comparison->src[0]);
    const Affine right = forms_.Of(hides.comparison->src[1]);
    const int64_t sign = hides.value ? 1 : -1;
    absl::flat_hash_map<const UOp*, int64_t> sum;
    std::vector<const UOp*> terms;
    for (const auto& [form, factor] : {std::pair{&left, sign}, {&right, -sign}})
      for (const auto& [term, coefficient] : form->terms) {
        if (!IsSmall(coefficient)) return false;
        if (sum.try_emplace(term, 0).second) terms.push_back(term);
        sum[term] += factor * static_cast<int64_t>(coefficient);
      }
    if (!IsSmall(left.constant) || !IsSmall(right.constant)) return false;
    // not (a < b) is b < a + 1, that is b - a - 1 < 0
    bound.constant = sign * static_cast<int64_t>(left.constant - right.constant);
    if (!hides.value) bound.constant -= 1;
    int64_t of_step = 0;
    for (const UOp* term : terms) {
      const int64_t coefficient = sum.at(term);
      if (coefficient == 0) continue;
      if (vars_ == VarsOfSteps::kMayHide && IsOfVars(term)) {
        if (std::max(std::abs(term->vmin), std::abs(term->vmax)) >
            kNumberMax / std::abs(coefficient))
          return false;
        bound.scalars.emplace_back(term, coefficient);
        continue;
      }
      if (term->op != Op::kRange) return false;
      const int range = kernel_.IndexOf(term);
      if (kernel_.ranges[range].extent > kNumberMax / std::abs(coefficient)) return false;
      if (range == range_) {
        of_step = coefficient;
      } else if (range < kernel_.output_count &&
                 (kernel_.DepsOf(plan_.panels[0].value) >> range & 1)) {
        bound.terms.emplace_back(range, coefficient);
      } else {
        return false;
      }
    }
    // rest + step < 0: hidden before -rest. rest - n step < 0: hidden after rest / n.
    const int64_t divisor_max = vars_ == VarsOfSteps::kMayHide ? kNumberMax : 1;
    if (of_step != 1 && (of_step >= 0 || of_step < -divisor_max)) return false;
    ends = of_step < 0;
    if (ends) bound.divisor = -of_step;
    if (!ends) {
      bound.constant = -bound.constant;
      for (auto& [range, coefficient] : bound.terms) coefficient = -coefficient;
      for (auto& [scalar, coefficient] : bound.scalars) coefficient = -coefficient;
    }
    return true;
  }

  // A number that is the same for the whole launch, within known bounds.
  static bool IsOfVars(const UOp* term) {
    if (term->vmin < -kNumberMax || term->vmax > kNumberMax) return false;
    for (const UOp* node : PostOrder(term))
      if (node->op != Op::kVar && !node->is_const() && !IsAlu(node->op)) return false;
    return true;
  }

  static bool IsSmall(uint64_t wrapped) {
    const auto number = static_cast<int64_t>(wrapped);
    return number < kNumberMax && number > -kNumberMax;
  }

  using Replacements = absl::flat_hash_map<const UOp*, const UOp*>;

  bool IsNeutral(const UOp* reduction, const Replacements& by, std::vector<const UOp*>& guards) {
    const Op op = ReduceOf(reduction).op();
    if (op == Op::kMax) return IsLowest(Masked(reduction->src[0], by));
    if (op != Op::kAdd) return false;
    const UOp* guard = nullptr;
    std::vector<const UOp*> stack = {reduction->src[0]};
    absl::flat_hash_set<const UOp*> seen;
    while (!stack.empty() && seen.size() < kFactorsMax) {
      const UOp* const factor = stack.back();
      stack.pop_back();
      if (!seen.insert(factor).second) continue;
      const UOp* const masked = Masked(factor, by);
      if (IsZero(masked) || IsZeroOfRow(factor, by)) return true;
      if (guard == nullptr && masked != factor && IsOfStep(masked)) guard = masked;
      if (factor->op == Op::kMul || factor->op == Op::kNeg || factor->op == Op::kCast)
        stack.insert(stack.end(), factor->src.begin(), factor->src.end());
    }
    if (guard != nullptr) guards.push_back(guard);
    return guard != nullptr;
  }

  // Whether it is an exponential of -inf, or a multiple or quotient of one, for all but rows whose
  // sums are NaN.
  bool IsZeroOfRow(const UOp* factor, const Replacements& by) {
    while (factor->op == Op::kFDiv || factor->op == Op::kCast) factor = factor->src[0];
    const auto max = max_of_.find(factor);
    return max != max_of_.end() && IsLowest(Masked(max->second->src[0], by));
  }

  // Whether it can be computed for each step before any tile is.
  bool IsOfStep(const UOp* node) const {
    for (const UOp* below : PostOrder(node)) {
      if (below->op == Op::kReduceLoop) return false;
      if (below->op != Op::kRange) continue;
      const int range = kernel_.IndexOf(below);
      if (range == range_) continue;
      if (range >= kernel_.output_count || !plan_.tiles[range].plain()) return false;
      if (!(kernel_.DepsOf(plan_.panels[0].value) >> range & 1)) return false;
    }
    return IsFloat(node->dtype);
  }

  const UOp* Masked(const UOp* node, const Replacements& by) {
    return Simplify(graph_, Substitute(graph_, node, by));
  }

  const LoopNest& kernel_;
  Graph& graph_;
  const LoopPlan& plan_;
  const VarsOfSteps vars_;
  int range_ = -1;
  int64_t multiple_ = 1;
  AffineForms forms_;
  std::vector<const UOp*> reductions_;                  // over the loop
  absl::flat_hash_map<const UOp*, const UOp*> max_of_;  // of exponentials
};

}  // namespace

VisibleSteps VisibleStepsOf(const LoopNest& kernel, const LoopPlan& plan, VarsOfSteps vars) {
  return Finder(kernel, plan, vars).Run();
}

}  // namespace outboard::codegen
