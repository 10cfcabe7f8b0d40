#include "compiler/ir/dims.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/check.h"
#include "compiler/ir/spec/walks.h"

namespace outboard {
namespace {

// Expressions are graphs: a shared term could be reached by exponentially many paths, so collecting
// stops here and what is left stands as one term. Sums of more terms than this are not written by
// people.
constexpr int kCollectStepsMax = 64;

// constant + sum of factor * expression, in the ring of 64-bit integers, so nothing here can
// overflow.
struct Sum {
  struct Term {
    const UOp* expression;
    uint64_t factor;
  };
  std::vector<Term> terms;  // in the order of first use; a factor may be 0
  uint64_t constant = 0;
  int parts = 0;  // how many terms and non-zero constants were added

  void Add(const UOp* expression, uint64_t factor) {
    ++parts;
    for (Term& term : terms) {
      if (term.expression != expression) continue;
      term.factor += factor;
      return;
    }
    terms.push_back({expression, factor});
  }

  void AddConstant(uint64_t value) {
    parts += value != 0;
    constant += value;
  }

  int parts_left() const {
    const auto zero = [](const Term& term) { return term.factor == 0; };
    return static_cast<int>(terms.size() - std::count_if(terms.begin(), terms.end(), zero)) +
           (constant != 0);
  }
};

// Takes its steps from the graph's walks.
absl::Status Collect(Graph& graph, const Dim& dim, uint64_t factor, Sum& sum) {
  if (dim.is_const()) {
    sum.AddConstant(factor * static_cast<uint64_t>(dim.value()));
    return absl::OkStatus();
  }
  std::vector<Sum::Term> left = {{dim.expression(), factor}};
  int steps = 0;
  for (; !left.empty(); ++steps) {
    const auto [node, by] = left.back();
    left.pop_back();
    if (node->is_const()) {
      sum.AddConstant(by * static_cast<uint64_t>(node->int_value()));
    } else if (steps < kCollectStepsMax && node->op == Op::kAdd) {
      left.push_back({node->src[1], by});
      left.push_back({node->src[0], by});
    } else if (steps < kCollectStepsMax && node->op == Op::kNeg) {
      left.push_back({node->src[0], -by});
    } else if (steps < kCollectStepsMax && node->op == Op::kMul && node->src[1]->is_const()) {
      left.push_back({node->src[0], by * static_cast<uint64_t>(node->src[1]->int_value())});
    } else {
      sum.Add(node, by);
    }
  }
  return spec::TakeSteps(graph, steps, "sums of dimensions");
}

absl::StatusOr<const UOp*> Number(Graph& graph, uint64_t value) {
  return graph.Make(Op::kConst, DType::kI64, {}, {static_cast<int64_t>(value)});
}

absl::StatusOr<Dim> Build(Graph& graph, const Sum& sum) {
  const UOp* total = nullptr;
  const auto add = [&](const UOp* part) -> absl::Status {
    if (total == nullptr) {
      total = part;
      return absl::OkStatus();
    }
    OB_ASSIGN_OR_RETURN(total, graph.Make(Op::kAdd, DType::kI64, {total, part}));
    return absl::OkStatus();
  };
  for (const auto& [expression, factor] : sum.terms) {
    if (factor == 0) continue;
    const UOp* part = expression;
    if (factor == ~uint64_t{0}) {
      OB_ASSIGN_OR_RETURN(part, graph.Make(Op::kNeg, DType::kI64, {expression}));
    } else if (factor != 1) {
      OB_ASSIGN_OR_RETURN(const UOp* number, Number(graph, factor));
      OB_ASSIGN_OR_RETURN(part, graph.Make(Op::kMul, DType::kI64, {expression, number}));
    }
    OB_RETURN_IF_ERROR(add(part));
  }
  if (total == nullptr) return Dim(static_cast<int64_t>(sum.constant));
  if (sum.constant != 0) {
    OB_ASSIGN_OR_RETURN(const UOp* number, Number(graph, sum.constant));
    OB_RETURN_IF_ERROR(add(number));
  }
  return Dim(total);
}

absl::StatusOr<const UOp*> AsNode(Graph& graph, const Dim& dim) {
  if (!dim.is_const()) return dim.expression();
  return Number(graph, static_cast<uint64_t>(dim.value()));
}

}  // namespace

absl::StatusOr<Dim> AddDims(Graph& graph, const Dim& a, const Dim& b) {
  if (a.is_const() && b.is_const()) {
    int64_t sum;
    if (__builtin_add_overflow(a.value(), b.value(), &sum))
      return absl::InvalidArgumentError("a dimension overflows");
    return Dim(sum);
  }
  if (a == Dim(0)) return b;
  if (b == Dim(0)) return a;
  Sum sum;
  OB_RETURN_IF_ERROR(Collect(graph, a, 1, sum));
  OB_RETURN_IF_ERROR(Collect(graph, b, 1, sum));
  if (sum.parts_left() < sum.parts) return Build(graph, sum);
  OB_ASSIGN_OR_RETURN(const UOp* left, AsNode(graph, a));
  OB_ASSIGN_OR_RETURN(const UOp* right, AsNode(graph, b));
  OB_ASSIGN_OR_RETURN(const UOp* total, graph.Make(Op::kAdd, DType::kI64, {left, right}));
  return Dim(total);
}

absl::StatusOr<Dim> SubtractDims(Graph& graph, const Dim& a, const Dim& b) {
  if (a == b) return Dim(0);
  if (b.is_const()) {
    int64_t negated;
    if (__builtin_sub_overflow(int64_t{0}, b.value(), &negated))
      return absl::InvalidArgumentError("a dimension overflows");
    return AddDims(graph, a, Dim(negated));
  }
  Sum sum;
  OB_RETURN_IF_ERROR(Collect(graph, a, 1, sum));
  OB_RETURN_IF_ERROR(Collect(graph, b, ~uint64_t{0}, sum));
  if (sum.parts_left() < sum.parts) return Build(graph, sum);
  OB_ASSIGN_OR_RETURN(const UOp* negated, graph.Make(Op::kNeg, DType::kI64, {b.expression()}));
  return AddDims(graph, a, Dim(negated));
}

DimFactors FactorsOf(const Dim& dim) {
  DimFactors factors;
  if (dim.is_const()) {
    factors.number = dim.value();
    return factors;
  }
  std::vector<const UOp*> left = {dim.expression()};
  for (; !left.empty(); ++factors.steps) {
    const UOp* const node = left.back();
    left.pop_back();
    const bool splits = node->op == Op::kMul && factors.steps < kCollectStepsMax;
    const bool by_number = splits && node->src[1]->is_const();
    int64_t number;
    if (splits && !by_number) {
      left.insert(left.end(), {node->src[1], node->src[0]});
    } else if (by_number && node->src[1]->int_value() >= 0 &&
               !__builtin_mul_overflow(factors.number, node->src[1]->int_value(), &number)) {
      factors.number = number;
      left.push_back(node->src[0]);
    } else {
      factors.expressions.push_back(node);
    }
  }
  return factors;
}

absl::StatusOr<bool> AtMost(Graph& graph, const Dim& a, const Dim& b) {
  if (a == b || a.max() <= b.min()) return true;
  if (a.is_const() && b.is_const()) return false;
  // Two numbers of at least 0 have a difference that fits 64 bits, so the bounds of b - a are those
  // of the integers.
  OB_ASSIGN_OR_RETURN(const Dim difference, SubtractDims(graph, b, a));
  return difference.min() >= 0;
}

}  // namespace outboard
