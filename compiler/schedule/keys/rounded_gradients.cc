#include "compiler/schedule/keys/rounded_gradients.h"

#include <cstdint>
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

bool IsFloatOf16(DType dtype) { return dtype == DType::kBF16 || dtype == DType::kF16; }

bool IsReduceOfOneAxis(const UOp* node, Op op) {
  return node->op == Op::kReduce && ReduceOf(node).op() == op && node->dtype == DType::kF32 &&
         ReduceOf(node).axes().size() == 1;
}

// What is subtracted from `x`, for each of its rows: `difference` is x + -m, and m a reduction by
// `op` of one axis that is repeated along it. nullptr: it is none.
const UOp* RowSubtracted(const UOp* difference, const UOp* x, Op op) {
  const UOp* minus = difference->src[difference->src[0] == x ? 1 : 0];
  bool negated = false;
  for (int i = 0; i < kStepsMax; ++i) {
    if (IsReduceOfOneAxis(minus, op)) return negated ? minus : nullptr;
    if (minus->op != Op::kNeg && minus->op != Op::kExpand && minus->op != Op::kReshape) break;
    negated = negated != (minus->op == Op::kNeg);
    minus = minus->src[0];
  }
  return nullptr;
}

// exp(x - max x), or that by what does not vary in a row.
bool AreWeights(const UOp* node) {
  if (node->op == Op::kFDiv && node->src[1]->op == Op::kExpand) node = node->src[0];
  if (node->op != Op::kExp || node->dtype != DType::kF32 || node->src[0]->op != Op::kAdd)
    return false;
  for (const UOp* x : node->src[0]->src)
    if (const UOp* const max = RowSubtracted(node->src[0], x, Op::kMax);
        max != nullptr && max->src[0] == x)
      return true;
  return false;
}

// Weights times (d - the sum over a row of weights times d).
bool IsGradientOfSoftmax(const UOp* product) {
  for (const int side : {0, 1}) {
    const UOp* const difference = product->src[1 - side];
    if (difference->op != Op::kAdd || !AreWeights(product->src[side])) continue;
    for (const UOp* d : difference->src) {
      const UOp* const sum = RowSubtracted(difference, d, Op::kAdd);
      if (sum == nullptr || sum->src[0]->op != Op::kMul) continue;
      const auto factors = sum->src[0]->src;
      if ((factors[0] == d && AreWeights(factors[1])) ||
          (factors[1] == d && AreWeights(factors[0])))
        return true;
    }
  }
  return false;
}

// What becomes of that on its way to the product that scores are: factors, conditions where it is 0
// otherwise, other places.
bool IsGradientOfScores(const UOp* node) {
  if (node->dtype != DType::kF32) return false;
  std::vector<const UOp*> open = {node};
  absl::flat_hash_set<const UOp*> seen = {node};
  const auto add = [&](const UOp* next) {
    if (next->dtype == DType::kF32 && seen.insert(next).second) open.push_back(next);
  };
  const auto is_zero = [](const UOp* value) {
    const UOp* const constant = ConstantOf(value);
    return constant != nullptr && IsZero(constant);
  };
  for (size_t i = 0; i < open.size() && i < kWalkNodesMax; ++i) {
    const UOp* const next = open[i];
    if (next->op == Op::kMul) {
      if (IsGradientOfSoftmax(next)) return true;
      add(next->src[0]);
      add(next->src[1]);
    } else if (next->op == Op::kWhere) {
      if (is_zero(next->src[2])) add(next->src[1]);
      if (is_zero(next->src[1])) add(next->src[2]);
    } else if (next->op == Op::kReshape || next->op == Op::kPermute) {
      add(next->src[0]);
    }
  }
  return false;
}

// Below what repeats it and puts it in other places.
const UOp* BelowMovements(const UOp* factor) {
  for (int i = 0; i < kStepsMax && IsMovement(factor->op); ++i) factor = factor->src[0];
  return factor;
}

// The type of 16 bits that a factor is cast from; kVoid: none.
DType TypeCastFrom(const UOp* factor) {
  factor = BelowMovements(factor);
  const bool is_cast =
      factor->op == Op::kCast && factor->dtype == DType::kF32 && IsFloatOf16(factor->src[0]->dtype);
  return is_cast ? factor->src[0]->dtype : DType::kVoid;
}

// A sum of products one factor of which is a gradient of scores.
struct Product {
  int side = 0;  // of that factor
  const UOp* gradient = nullptr;
  DType dtype = DType::kVoid;
};

class Rounder {
 public:
  Rounder(Graph& graph, const UOp* sink) : g_(graph), order_(PostOrder(sink)) {
    for (const UOp* node : order_)
      for (const UOp* s : node->src) users_[s].push_back(node);
    absl::flat_hash_map<const UOp*, bool> known;  // equal gradients are factors of two products
    for (const UOp* node : order_) {
      if (!IsReduceOfOneAxis(node, Op::kAdd) || node->src[0]->op != Op::kMul) continue;
      for (const int side : {0, 1}) {
        const DType dtype = TypeCastFrom(node->src[0]->src[1 - side]);
        if (dtype == DType::kVoid) continue;
        const UOp* const gradient = BelowMovements(node->src[0]->src[side]);
        const auto [entry, fresh] = known.emplace(gradient, false);
        if (fresh) entry->second = IsGradientOfScores(gradient);
        if (entry->second && IsRoundedTo(node, dtype))
          products_.emplace(node, Product{side, gradient, dtype});
      }
    }
  }

  bool HasProducts() const { return !products_.empty(); }

  absl::StatusOr<RoundedGradients> Run(const absl::flat_hash_set<const UOp*>& exact) {
    made_.clear();
    rounded_.clear();
    all_.clear();
    for (const UOp* node : order_) {
      if (g_.node_count() + kNodesOfAProduct > limits::kGraphNodesMax)
        return absl::ResourceExhaustedError(
            absl::StrCat("the graph needs over ", limits::kGraphNodesMax, " nodes"));
      const auto product = products_.find(node);
      if (product == products_.end() || exact.contains(product->second.gradient)) {
        made_[node] = WithSourcesBecome(g_, node, made_);
        continue;
      }
      const auto [side, gradient, dtype] = product->second;
      const UOp* factors[2] = {made_.at(node->src[0]->src[0]), made_.at(node->src[0]->src[1])};
      factors[side] = Rounded(node->src[0]->src[side], gradient, dtype);
      made_[node] =
          Reduce(g_, Op::kAdd, Mul(g_, factors[0], factors[1]), {ReduceOf(node).axes()[0]});
    }
    return RoundedGradients{made_.at(order_.back()), all_};
  }

 private:
  // Whether nothing reads a sum but what rounds it to this type, in other places.
  bool IsRoundedTo(const UOp* sum, DType dtype) const {
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

  // A factor, the gradient that it is made of rounded below its movements: one node for both
  // products.
  const UOp* Rounded(const UOp* factor, const UOp* gradient, DType dtype) {
    const UOp*& base = rounded_[{gradient, dtype}];
    if (base == nullptr) {
      base = Cast(g_, Cast(g_, made_.at(gradient), dtype), DType::kF32);
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
  absl::flat_hash_map<const UOp*, Product> products_;  // by their sum
  absl::flat_hash_map<const UOp*, const UOp*> made_;
  absl::flat_hash_map<std::pair<const UOp*, DType>, const UOp*> rounded_;
  std::vector<RoundedGradient> all_;
};

}  // namespace

absl::StatusOr<RoundedGradients> RoundGradients(Graph& graph, const UOp* sink, ScorePolicy policy,
                                                const Target& target,
                                                const absl::flat_hash_set<const UOp*>& exact) {
  const RoundedGradients none{sink, {}};
  if (target.kind != TargetKind::kCuda || policy == ScorePolicy::kKeep) return none;
  Rounder rounder(graph, sink);
  if (!rounder.HasProducts()) return none;
  absl::flat_hash_set<const UOp*> as_they_are = exact;
  // All gradients of an attention that keeps its scores are left out together, so the second graph
  // is that of the others; what they change for each other, a third one would show.
  constexpr int kRoundsMax = 3;
  for (int round = 0; round < kRoundsMax; ++round) {
    OB_ASSIGN_OR_RETURN(RoundedGradients rounded, rounder.Run(as_they_are));
    if (rounded.all.empty()) return none;
    const Scores scores = FindScores(rounded.sink, policy, target);
    const size_t before = as_they_are.size();
    for (const RoundedGradient& gradient : rounded.all)
      if (!scores.attention_of.contains(gradient.rounded)) as_they_are.insert(gradient.exact);
    if (as_they_are.size() == before) return rounded;
  }
  return none;
}

}  // namespace outboard::schedule
