#include "compiler/schedule/keys/rounded_gradients.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "compiler/ir/accessors.h"
#include "compiler/ir/build.h"
#include "compiler/ir/limits.h"
#include "compiler/rewrite/rebuild.h"

namespace outboard::schedule {
namespace {

// So that a graph has no more work than nodes: from a factor down to p (dp - sum), and in a row.
constexpr size_t kWalkNodesMax = 64;
constexpr int kStepsMax = 16;
constexpr int64_t kNodesOfAProduct = 32;
// What is left is for the passes that come behind this one.
constexpr int64_t kNodesMax = limits::kGraphNodesMax / 2;

bool IsReduceOfOneAxis(const UOp* node, Op op) {
  return node->op == Op::kReduce && ReduceOf(node).op() == op && node->dtype == DType::kF32 &&
         ReduceOf(node).axes().size() == 1;
}

int64_t AxisOf(const UOp* reduce) { return ReduceOf(reduce).axes()[0]; }

// Whether `expand` repeats what was reduced along the axis of the reduction, to the shape that this
// had before.
bool RepeatsAlongAxis(const UOp* expand, const UOp* reduce) {
  const ShapeView from = expand->src[0]->shape, to = expand->shape;
  if (to != reduce->src[0]->shape || from.size() != to.size()) return false;
  for (size_t axis = 0; axis < to.size(); ++axis) {
    const bool is_reduced = static_cast<int64_t>(axis) == AxisOf(reduce);
    if (is_reduced ? from[axis] != Dim(1) : from[axis] != to[axis]) return false;
  }
  return true;
}

// What is subtracted from `x`, for each of its rows: `difference` is x + -m, and m a reduction by
// `op` of one axis that is repeated along it. nullptr: it is none.
const UOp* RowSubtracted(const UOp* difference, const UOp* x, Op op) {
  const UOp* minus = difference->src[difference->src[0] == x ? 1 : 0];
  const UOp* expand = nullptr;
  bool negated = false;
  for (int i = 0; i < kStepsMax; ++i) {
    if (IsReduceOfOneAxis(minus, op))
      return negated && expand != nullptr && RepeatsAlongAxis(expand, minus) ? minus : nullptr;
    if (minus->op == Op::kExpand && expand == nullptr)
      expand = minus;
    else if (minus->op != Op::kNeg && minus->op != Op::kReshape)
      break;
    negated = negated != (minus->op == Op::kNeg);
    minus = minus->src[0];
  }
  return nullptr;
}

// exp(x - max x), and the axis of the maximum.
struct Weights {
  const UOp* exponentials = nullptr;  // nullptr: it is none
  int64_t axis = 0;
  bool operator==(const Weights&) const = default;
};

// Of exp(x - max x), or that by what is repeated.
Weights WeightsOf(const UOp* node) {
  if (node->op == Op::kFDiv && node->src[1]->op == Op::kExpand) node = node->src[0];
  if (node->op != Op::kExp || node->dtype != DType::kF32 || node->src[0]->op != Op::kAdd) return {};
  for (const UOp* x : node->src[0]->src)
    if (const UOp* const max = RowSubtracted(node->src[0], x, Op::kMax);
        max != nullptr && max->src[0] == x)
      return {node, AxisOf(max)};
  return {};
}

// Whether a divisor is the sum of the exponentials' rows.
bool IsRowSum(const UOp* divisor, const Weights& weights) {
  if (divisor->op != Op::kExpand) return false;
  const UOp* const sum = divisor->src[0];
  return IsReduceOfOneAxis(sum, Op::kAdd) && sum->src[0] == weights.exponentials &&
         AxisOf(sum) == weights.axis && RepeatsAlongAxis(divisor, sum);
}

// Whether p (d - sum of p d) is less than half of f16's largest number in size wherever d as it is
// written is finite. `outer` and `inner` are the weights as they stand before the difference and in
// the sum. d is cast from f16, and where p adds up to 1, p (d - sum of p d) is at most
// p (1 - p) <= 1/4 times the difference of two. By a row's sum, which is at least 1, all are
// the smaller.
bool IsWithinF16(const UOp* outer, const UOp* inner, const UOp* d, const Weights& weights) {
  const auto is_divided = [&](const UOp* node) {
    return node->op == Op::kFDiv && IsRowSum(node->src[1], weights);
  };
  if (!is_divided(inner)) return false;
  if (outer->op == Op::kFDiv && !is_divided(outer)) return false;
  if (outer->op != Op::kFDiv && !is_divided(d)) return false;
  if (is_divided(d)) d = d->src[0];
  while (d->op == Op::kReshape || d->op == Op::kPermute) d = d->src[0];
  return d->op == Op::kCast && d->src[0]->dtype == DType::kF16;
}

// Weights times (d - the sum over a row of the same weights times d). Either may be divided by what
// is repeated, as by the row's sum: the exponentials are the same. For f16 see IsWithinF16.
bool IsGradientOfSoftmax(const UOp* product, DType rounded) {
  for (const int side : {0, 1}) {
    const UOp* const outer = product->src[side];
    const UOp* const difference = product->src[1 - side];
    const Weights weights = WeightsOf(outer);
    if (difference->op != Op::kAdd || weights.exponentials == nullptr) continue;
    for (const UOp* d : difference->src) {
      const UOp* const sum = RowSubtracted(difference, d, Op::kAdd);
      if (sum == nullptr || AxisOf(sum) != weights.axis || sum->src[0]->op != Op::kMul) continue;
      const auto factors = sum->src[0]->src;
      for (const int i : {0, 1})
        if (factors[1 - i] == d && WeightsOf(factors[i]) == weights &&
            (rounded != DType::kF16 || IsWithinF16(outer, factors[i], d, weights)))
          return true;
    }
  }
  return false;
}

// A constant factor that a node multiplies its first or second source by; nothing: it is none.
struct ConstantFactor {
  const UOp* of = nullptr;
  double by = 1;
};
std::optional<ConstantFactor> ConstantFactorOf(const UOp* node) {
  if (node->op == Op::kNeg) return ConstantFactor{node->src[0], -1};
  if (node->op != Op::kMul && node->op != Op::kFDiv) return std::nullopt;
  if (const UOp* const by = ConstantOf(node->src[1])) {
    const auto value = std::bit_cast<double>(ConstantBits(by));
    return ConstantFactor{node->src[0], node->op == Op::kMul ? value : 1 / value};
  }
  if (const UOp* const by = node->op == Op::kMul ? ConstantOf(node->src[0]) : nullptr)
    return ConstantFactor{node->src[1], std::bit_cast<double>(ConstantBits(by))};
  return std::nullopt;
}

// What becomes of p (dp - sum) on its way to the product that scores are: constant factors, other
// factors, divisors, conditions where it is 0 otherwise, other places.
struct Way {
  std::vector<const UOp*> nodes;  // from the product's factor down to p (dp - sum); empty: none
  double factor = 1;              // all constant ones together
};

// To `rounded`: of f16 none but constant factors, which are taken out.
Way WayToScores(const UOp* node, DType rounded) {
  if (node->dtype != DType::kF32) return {};
  std::vector<const UOp*> open = {node};
  absl::flat_hash_map<const UOp*, const UOp*> above = {{node, nullptr}};
  for (size_t i = 0; i < open.size() && i < kWalkNodesMax; ++i) {
    const UOp* const next = open[i];
    const auto add = [&](const UOp* below) {
      if (below->dtype == DType::kF32 && above.emplace(below, next).second) open.push_back(below);
    };
    const auto is_zero = [](const UOp* value) {
      const UOp* const constant = ConstantOf(value);
      return constant != nullptr && IsZero(constant);
    };
    if (next->op == Op::kMul && IsGradientOfSoftmax(next, rounded)) {
      Way way;
      for (const UOp* step = next; step != nullptr; step = above.at(step)) {
        way.nodes.insert(way.nodes.begin(), step);
        if (const auto constant = ConstantFactorOf(step)) way.factor *= constant->by;
      }
      return std::isnormal(static_cast<float>(way.factor)) ? way : Way{};
    }
    if (const auto constant = ConstantFactorOf(next)) {
      add(constant->of);
    } else if (next->op == Op::kMul || next->op == Op::kFDiv) {
      if (rounded == DType::kF16 || next->src[0] == next->src[1]) continue;
      add(next->src[0]);
      if (next->op == Op::kMul) add(next->src[1]);
    } else if (next->op == Op::kWhere) {
      if (is_zero(next->src[2])) add(next->src[1]);
      if (is_zero(next->src[1])) add(next->src[2]);
    } else if (next->op == Op::kReshape || next->op == Op::kPermute) {
      add(next->src[0]);
    }
  }
  return {};
}

// Below what repeats it and puts it in other places.
const UOp* BelowMovements(const UOp* factor) {
  for (int i = 0; i < kStepsMax && IsMovement(factor->op); ++i) factor = factor->src[0];
  return factor;
}

// The type of 16 bits that a factor is cast from; kVoid: none.
DType CastFrom(const UOp* factor) {
  factor = BelowMovements(factor);
  if (factor->op != Op::kCast || factor->dtype != DType::kF32) return DType::kVoid;
  const DType dtype = factor->src[0]->dtype;
  return dtype == DType::kBF16 || dtype == DType::kF16 ? dtype : DType::kVoid;
}

// A sum of products one factor of which is a gradient of scores.
struct Product {
  int side = 0;  // of that factor
  const UOp* gradient = nullptr;
  DType dtype = DType::kVoid;  // of the other factor
};

class Rounder {
 public:
  Rounder(Graph& graph, const UOp* sink) : g_(graph), order_(PostOrder(sink)) {
    for (const UOp* node : order_)
      for (const UOp* s : node->src) users_[s].push_back(node);
    for (const UOp* node : order_) {
      if (!IsReduceOfOneAxis(node, Op::kAdd) || node->src[0]->op != Op::kMul) continue;
      for (const int side : {0, 1}) {
        const DType dtype = CastFrom(node->src[0]->src[1 - side]);
        if (dtype == DType::kVoid || !IsRounded(node, dtype)) continue;
        const UOp* const gradient = BelowMovements(node->src[0]->src[side]);
        // Equal gradients are factors of two products.
        const auto [way, fresh] = ways_.try_emplace({gradient, dtype});
        if (fresh) way->second = WayToScores(gradient, dtype);
        if (!way->second.nodes.empty()) products_.emplace(node, Product{side, gradient, dtype});
      }
    }
  }

  bool HasProducts() const { return !products_.empty(); }

  absl::StatusOr<RoundedGradients> Run(const absl::flat_hash_set<const UOp*>& as_written) {
    made_.clear();
    rounded_.clear();
    all_.clear();
    for (const UOp* node : order_) {
      if (g_.node_count() + kNodesOfAProduct > kNodesMax)
        return absl::ResourceExhaustedError(
            absl::StrCat("the graph has over ", kNodesMax, " nodes"));
      const auto product = products_.find(node);
      if (product == products_.end() || as_written.contains(product->second.gradient)) {
        made_[node] = WithSourcesBecome(g_, node, made_);
        continue;
      }
      const auto [side, gradient, dtype] = product->second;
      const UOp* factors[2] = {made_.at(node->src[0]->src[0]), made_.at(node->src[0]->src[1])};
      factors[side] = Rounded(node->src[0]->src[side], gradient, dtype);
      const UOp* const sum = Reduce(g_, Op::kAdd, Mul(g_, factors[0], factors[1]), {AxisOf(node)});
      const double factor = ways_.at({gradient, dtype}).factor;
      made_[node] = factor == 1
                        ? sum
                        : Mul(g_, sum, Full(g_, ConstFloat(g_, DType::kF32, factor), sum->shape));
    }
    return RoundedGradients{made_.at(order_.back()), all_};
  }

 private:
  // Whether all that reads a sum, through movements, rounds it to `dtype`.
  bool IsRounded(const UOp* sum, DType dtype) const {
    std::vector<const UOp*> open = {sum};
    for (size_t i = 0; i < open.size(); ++i) {
      const auto users = users_.find(open[i]);
      if (users == users_.end() || open.size() > kWalkNodesMax) return false;
      for (const UOp* user : users->second) {
        if (user->op == Op::kCast && user->dtype == dtype) continue;
        if (!IsMovement(user->op)) return false;
        open.push_back(user);
      }
    }
    return true;
  }

  // A gradient without its constant factors.
  const UOp* WithoutFactor(const std::vector<const UOp*>& nodes) const {
    const UOp* below = nodes.back();
    const UOp* value = made_.at(below);
    for (auto node = nodes.rbegin() + 1; node != nodes.rend(); ++node) {
      if (!ConstantFactorOf(*node)) {
        absl::flat_hash_map<const UOp*, const UOp*> become = {{below, value}};
        for (const UOp* s : (*node)->src)
          if (s != below) become[s] = made_.at(s);
        value = WithSourcesBecome(g_, *node, become);
      }
      below = *node;
    }
    return value;
  }

  // A factor, the gradient that it is made of rounded below its movements: one node for both
  // products.
  const UOp* Rounded(const UOp* factor, const UOp* gradient, DType dtype) {
    const UOp*& base = rounded_[{gradient, dtype}];
    if (base == nullptr) {
      const UOp* const value = WithoutFactor(ways_.at({gradient, dtype}).nodes);
      base = Cast(g_, Cast(g_, value, dtype), DType::kF32);
      all_.push_back({gradient, base});
    }
    std::vector<const UOp*> movements;
    for (; factor != gradient; factor = factor->src[0]) movements.push_back(factor);
    absl::flat_hash_map<const UOp*, const UOp*> become = {{gradient, base}};
    for (auto movement = movements.rbegin(); movement != movements.rend(); ++movement) {
      const UOp* const node = *movement;
      for (const UOp* s : node->src.subspan(1)) become[s] = made_.at(s);  // dimensions
      become[node] = WithSourcesBecome(g_, node, become);
    }
    return become.at(movements.empty() ? gradient : movements.front());
  }

  Graph& g_;
  const std::vector<const UOp*> order_;
  absl::flat_hash_map<const UOp*, std::vector<const UOp*>> users_;
  using GradientAndType = std::pair<const UOp*, DType>;
  absl::flat_hash_map<GradientAndType, Way> ways_;
  absl::flat_hash_map<const UOp*, Product> products_;  // by their sum
  absl::flat_hash_map<const UOp*, const UOp*> made_;
  absl::flat_hash_map<GradientAndType, const UOp*> rounded_;
  std::vector<RoundedGradient> all_;
};

}  // namespace

absl::StatusOr<RoundedGradients> RoundGradients(Graph& graph, const UOp* sink, ScorePolicy policy,
                                                const Target& target,
                                                absl::flat_hash_set<const UOp*> as_written,
                                                const std::vector<DividedKeys>& divided) {
  const RoundedGradients none{sink, {}};
  if (target.kind != TargetKind::kCuda || policy == ScorePolicy::kKeep) return none;
  Rounder rounder(graph, sink);
  if (!rounder.HasProducts()) return none;
  // Gradients of attentions that store their scores are left out, and FindScores is asked again of
  // the others. If the third round still leaves some out, nothing is rounded.
  constexpr int kRoundsMax = 3;
  for (int round = 0; round < kRoundsMax; ++round) {
    OB_ASSIGN_OR_RETURN(RoundedGradients rounded, rounder.Run(as_written));
    if (rounded.all.empty()) return none;
    std::vector<DividedKeys> of_rounded = divided;
    OB_ASSIGN_OR_RETURN(
        const UOp* const without_maxima,
        TakeMaxima(graph, rounded.sink, sink->src.size() - divided.size(), of_rounded));
    const Scores scores = FindScores(without_maxima, policy, target, ScoresOfParts(of_rounded));
    const size_t before = as_written.size();
    for (const RoundedGradient& gradient : rounded.all)
      if (!scores.attention_of.contains(gradient.rounded)) as_written.insert(gradient.written);
    if (as_written.size() == before) return rounded;
  }
  return none;
}

}  // namespace outboard::schedule
