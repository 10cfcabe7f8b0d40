#include "compiler/rewrite/rules/linear.h"

#include <algorithm>

#include "compiler/ir/build.h"
#include "compiler/rewrite/order.h"

namespace outboard {
namespace {

// Expressions are graphs, so a shared sum is walked once for each path to it. Of canonical sums,
// whose terms are few, two joined ones and their factors stay far below this.
constexpr int kWalkMax = 8 * kLinearTermsMax;

// Modulo 2^width, as the signed number nearest to zero.
int64_t Reduce(DType dtype, uint64_t value) {
  switch (ByteWidth(dtype)) {
    case 1: return static_cast<int8_t>(value);
    case 2: return static_cast<int16_t>(value);
    case 4: return static_cast<int32_t>(value);
    default: return static_cast<int64_t>(value);
  }
}

bool IsShiftByConstant(const UOp* node) {
  return node->op == Op::kShl && node->src[1]->is_const() && node->src[1]->int_value() >= 0 &&
         node->src[1]->int_value() < 8 * ByteWidth(node->dtype);
}

struct Part {
  const UOp* node;
  uint64_t factor;
};

}  // namespace

void AddTerm(LinearSum& linear, const UOp* term, int64_t coefficient) {
  auto& terms = linear.terms;
  size_t at = terms.size();
  while (at > 0) {
    const int order = CompareStructure(terms[at - 1].first, term);
    if (order < 0) break;
    --at;
    if (order > 0) continue;
    int64_t& sum = terms[at].second;
    sum = Reduce(linear.dtype, static_cast<uint64_t>(sum) + static_cast<uint64_t>(coefficient));
    if (sum == 0) terms.erase(terms.begin() + at);
    return;
  }
  coefficient = Reduce(linear.dtype, static_cast<uint64_t>(coefficient));
  if (coefficient != 0) terms.insert(terms.begin() + at, {term, coefficient});
}

void AddScaled(LinearSum& linear, const LinearSum& other, int64_t factor) {
  const auto by = static_cast<uint64_t>(factor);
  linear.constant = Reduce(linear.dtype, static_cast<uint64_t>(linear.constant) +
                                             static_cast<uint64_t>(other.constant) * by);
  for (const auto& [term, coefficient] : other.terms)
    AddTerm(linear, term, static_cast<int64_t>(static_cast<uint64_t>(coefficient) * by));
}

LinearSum AsTerm(const UOp* expression) {
  LinearSum sum;
  sum.dtype = expression->dtype;
  sum.terms.emplace_back(expression, 1);
  return sum;
}

LinearSum LinearOf(const UOp* expression) {
  LinearSum sum;
  sum.dtype = expression->dtype;
  absl::InlinedVector<Part, 16> left, found;
  left.push_back({expression, 1});
  uint64_t constant = 0;
  // From the right, so that a long chain of additions ends the walk after as many steps as it may
  // have terms, not after all of its depth.
  for (int steps = 0; !left.empty(); ++steps) {
    const auto [node, by] = left.back();
    left.pop_back();
    if (node->op == Op::kConst) {
      constant += by * static_cast<uint64_t>(node->int_value());
    } else if (node->op == Op::kAdd) {
      left.push_back({node->src[0], by});
      left.push_back({node->src[1], by});
    } else if (node->op == Op::kNeg) {
      left.push_back({node->src[0], 0 - by});
    } else if (node->op == Op::kMul && node->src[1]->is_const()) {
      left.push_back({node->src[0], by * static_cast<uint64_t>(node->src[1]->int_value())});
    } else if (node->op == Op::kMul && node->src[0]->is_const()) {
      left.push_back({node->src[1], by * static_cast<uint64_t>(node->src[0]->int_value())});
    } else if (IsShiftByConstant(node)) {
      left.push_back({node->src[0], by << node->src[1]->int_value()});
    } else {
      found.push_back({node, by});
    }
    if (steps > kWalkMax) return AsTerm(expression);
  }
  for (size_t i = found.size(); i-- > 0;) {  // canonical sums are in order from the left
    AddTerm(sum, found[i].node, static_cast<int64_t>(found[i].factor));
    if (sum.terms.size() > kLinearTermsMax) return AsTerm(expression);
  }
  sum.constant = Reduce(sum.dtype, constant);
  return sum;
}

const UOp* FromLinear(Graph& graph, LinearSum linear) {
  const auto before = [](const auto& a, const auto& b) {
    return CompareStructure(a.first, b.first) < 0;
  };
  if (!std::is_sorted(linear.terms.begin(), linear.terms.end(), before))
    std::sort(linear.terms.begin(), linear.terms.end(), before);
  const auto number = [&](int64_t value) {
    return ConstInt(graph, linear.dtype, WrapTo(linear.dtype, value));
  };
  const UOp* total = nullptr;
  for (const auto& [term, coefficient] : linear.terms) {
    if (coefficient == 0) continue;
    const UOp* const part =
        coefficient == 1 ? term
                         : graph.MakeChecked(Op::kMul, linear.dtype, {term, number(coefficient)});
    total = total == nullptr ? part : graph.MakeChecked(Op::kAdd, linear.dtype, {total, part});
  }
  if (total == nullptr) return number(linear.constant);
  if (Reduce(linear.dtype, static_cast<uint64_t>(linear.constant)) == 0) return total;
  return graph.MakeChecked(Op::kAdd, linear.dtype, {total, number(linear.constant)});
}

bool IsExpressionOf(const UOp* expression, const LinearSum& linear) {
  const auto is_number = [&](const UOp* node, int64_t value) {
    return node->is_const() && node->int_value() == WrapTo(linear.dtype, value);
  };
  const UOp* left = expression;  // the sum up to and including the term that is looked at
  if (linear.terms.empty()) return is_number(left, linear.constant);
  if (linear.constant != 0) {
    if (left->op != Op::kAdd || !is_number(left->src[1], linear.constant)) return false;
    left = left->src[0];
  }
  for (size_t i = linear.terms.size(); i-- > 0;) {
    const auto& [term, coefficient] = linear.terms[i];
    const UOp* part = left;
    if (i > 0) {
      if (left->op != Op::kAdd) return false;
      part = left->src[1];
      left = left->src[0];
    }
    if (coefficient == 1
            ? part != term
            : part->op != Op::kMul || part->src[0] != term || !is_number(part->src[1], coefficient))
      return false;
  }
  return true;
}

WideBounds BoundsOfSum(const LinearSum& linear) {
  // Far enough out that kLinearTermsMax terms of it cannot overflow, and no type reaches it.
  constexpr __int128 kFar = static_cast<__int128>(1) << 100;
  WideBounds bounds = {linear.constant, linear.constant};
  for (const auto& [term, coefficient] : linear.terms) {
    const __int128 a = static_cast<__int128>(term->vmin) * coefficient;
    const __int128 b = static_cast<__int128>(term->vmax) * coefficient;
    if (std::min(a, b) < -kFar || std::max(a, b) > kFar) return {-kFar, kFar};
    bounds.min += std::min(a, b);
    bounds.max += std::max(a, b);
  }
  return bounds;
}

bool IsExact(const LinearSum& linear) {
  // Bounds of a large u64 are not those of its value.
  if (linear.dtype == DType::kU64 &&
      std::any_of(linear.terms.begin(), linear.terms.end(),
                  [](const auto& term) { return term.first->vmin < 0; }))
    return false;
  const WideBounds bounds = BoundsOfSum(linear);
  return bounds.min >= IntMin(linear.dtype) && bounds.max <= IntMax(linear.dtype);
}

}  // namespace outboard
