#include "compiler/schedule/keys/gradient_sums.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "compiler/ir/accessors.h"
#include "compiler/ir/build.h"
#include "compiler/ir/limits.h"
#include "compiler/rewrite/rebuild.h"
#include "compiler/schedule/padded_dims.h"

namespace outboard::schedule {
namespace {

// Estimates for a multiprocessor of an H100. A score that is not computed saves ten instructions of
// a thread and two products: 0.06 ns. A result and its gradient are 4 bytes of 25 a nanosecond, and
// one more kernel takes 3 us (split.cc). A mask may hide half of the scores.
constexpr double kScoresOfColumn = 3, kScoresOfKernel = 50'000, kVisiblePart = 0.5;

constexpr int kStepsMax = 16;     // between weights and a product, or results and their rounding
constexpr int kProductsMax = 16;  // of one factor, looked at for each sum
constexpr int64_t kNodesOfASum = 64;

// The dimensions that are not 1, which a RESHAPE may put in other places; `axis` -1: of all.
std::vector<Dim> LongDims(ShapeView shape, int64_t axis = -1) {
  std::vector<Dim> dims;
  for (int64_t i = 0; i < static_cast<int64_t>(shape.size()); ++i)
    if (shape[i] != Dim(1) && i != axis) dims.push_back(shape[i]);
  return dims;
}
int64_t LongDimsBefore(ShapeView shape, int64_t axis) {
  return std::ssize(LongDims(shape.subspan(0, axis)));
}

// One matrix made of another: what each is made of, from its last step to the first one.
using Steps = std::vector<const UOp*>;

bool IsRearranged(const UOp* step) { return step->op == Op::kReshape || step->op == Op::kPermute; }

// Whether it is `node` but for dimensions of 1.
bool IsOfLongDims(const UOp* step, const UOp* node) {
  return step->op == Op::kReshape && LongDims(step->shape) == LongDims(node->shape);
}

// Finds the steps from `top` down to what `is_end`, which is not among them: rounding, places of
// dimensions, products and conditions where it is 0 otherwise. Each node that it looks at is taken
// from `visits_left`.
template <typename IsEnd>
bool FindSteps(const UOp* top, const IsEnd& is_end, int64_t& visits_left, Steps& steps) {
  // Of a product whose second factor is still to be tried: it, and how many steps are before it.
  std::vector<std::pair<const UOp*, size_t>> others;
  for (int visits = 0; visits < 4 * kStepsMax && --visits_left >= 0; ++visits) {
    if (is_end(top)) return true;
    const UOp* next = nullptr;
    if (std::ssize(steps) < kStepsMax) {
      if (IsRearranged(top) || top->op == Op::kCast) {
        next = top->src[0];
      } else if (top->op == Op::kMul) {
        next = top->src[0];
        others.emplace_back(top, steps.size());
      } else if (top->op == Op::kWhere && ConstantOf(top->src[2]) != nullptr &&
                 IsZero(ConstantOf(top->src[2]))) {
        next = top->src[1];
      }
    }
    if (next != nullptr) {
      steps.push_back(top);
      top = next;
      continue;
    }
    if (others.empty()) return false;
    const auto [product, before] = others.back();
    others.pop_back();
    steps.resize(before);
    steps.push_back(product);
    top = product->src[1];
  }
  return false;
}

// What a step multiplies by, or where it is not 0; nullptr: neither. `below` is what it is made of.
const UOp* FactorOf(const UOp* step, const UOp* below) {
  if (step->op == Op::kMul) return step->src[step->src[0] == below ? 1 : 0];
  return step->op == Op::kWhere ? step->src[0] : nullptr;
}

std::vector<const UOp*> FactorsOf(const Steps& steps, const UOp* end) {
  std::vector<const UOp*> factors;
  for (size_t i = 0; i < steps.size(); ++i)
    if (const UOp* const factor = FactorOf(steps[i], i + 1 < steps.size() ? steps[i + 1] : end))
      factors.push_back(factor);
  std::sort(factors.begin(), factors.end());  // by address, for comparing only
  return factors;
}

// Whether dimensions change places before the last factor, seen from the top; `from_end`: after the
// first one, seen from there.
bool MovesBeyondFactors(const Steps& steps, bool from_end) {
  bool moved = false;
  for (size_t i = 0; i < steps.size(); ++i) {
    const UOp* const step = steps[from_end ? steps.size() - 1 - i : i];
    if (IsRearranged(step)) moved = true;
    if (moved && (step->op == Op::kMul || step->op == Op::kWhere)) return true;
  }
  return false;
}

bool AreOfFloats(const Steps& steps) {
  return std::all_of(steps.begin(), steps.end(), [](const UOp* step) {
    return step->dtype == DType::kF32 || IsFloatOf16(step->dtype);
  });
}

// Sets which of the end's long dimensions each of the top's is, where `order` says that of the
// end's own. Returns false where a RESHAPE joins or divides some.
bool Rearrange(const Steps& steps, std::vector<int64_t>& order) {
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    const UOp* const node = *step;
    if (!IsRearranged(node)) continue;
    const ShapeView from = node->src[0]->shape;
    if (node->op == Op::kReshape) {
      if (LongDims(from) != LongDims(node->shape)) return false;
      continue;
    }
    std::vector<int64_t> permuted;
    for (const int64_t axis : PermuteOf(node).axes())
      if (from[axis] != Dim(1)) permuted.push_back(order[LongDimsBefore(from, axis)]);
    order = std::move(permuted);
  }
  return true;
}

bool IsSum(const UOp* node) {
  return node->op == Op::kReduce && ReduceOf(node).op() == Op::kAdd && node->dtype == DType::kF32;
}

// What an EXPAND repeats, behind casts; nullptr: it is none.
const UOp* RepeatedOf(const UOp* node) {
  for (int casts = 0; casts < kStepsMax && node->op == Op::kCast; ++casts) node = node->src[0];
  return node->op == Op::kExpand ? node->src[0] : nullptr;
}

// A sum over keys of weights times their gradients, which are both divided by s: T of p (dp / s).
struct GradientSum {
  const UOp* weights = nullptr;      // p, one of T's factors
  const UOp* quotient = nullptr;     // dp / s, the other one
  const UOp* columns_sum = nullptr;  // of g v, one for each weight: what dp is made of
  Steps to_gradient;                 // from it up to dp
  const UOp* results = nullptr;      // o, the sum over keys of the weights times values
  const UOp* repeated_of_results =
      nullptr;                 // g, for each key: a factor of the terms of columns_sum
  std::vector<int64_t> order;  // the dimensions of `columns_sum`, by those of the weights
  int64_t keys_axis = 0;       // of the results' terms

  const UOp* sums_of_rows() const { return quotient->src[1]->src[0]; }  // s
};

class Finder {
 public:
  // Looks at `visits_max` nodes at most, in all calls of Find together.
  Finder(const std::vector<const UOp*>& order, int64_t visits_max) : visits_left_(visits_max) {
    for (const UOp* node : order) {
      for (const UOp* s : node->src) users_[s].push_back(node);
      if (IsSum(node) && node->src[0]->op == Op::kMul && ReduceOf(node).axes().size() == 1)
        for (const UOp* factor : node->src[0]->src) sums_of_[factor].push_back(node);
    }
  }

  std::optional<GradientSum> Find(const UOp* sum) {
    if (!IsSum(sum) || ReduceOf(sum).axes().size() != 1 || sum->src[0]->op != Op::kMul)
      return std::nullopt;
    const UOp* const product = sum->src[0];
    for (const int side : {0, 1}) {
      GradientSum found{.weights = product->src[side], .quotient = product->src[1 - side]};
      const UOp *const p = found.weights, *const q = found.quotient;
      if (p->op != Op::kFDiv || q->op != Op::kFDiv || p->src[1] != q->src[1] ||
          q->src[1]->op != Op::kExpand || found.sums_of_rows()->shape != sum->shape)
        continue;
      if (Complete(sum, found)) return found;
    }
    return std::nullopt;
  }

  // The steps from the results to where they are rounded, perhaps in other places, if nobody reads
  // them otherwise, and on to where dimensions of 1 come or go. None: they are stored as they are.
  Steps ToRounded(const UOp* results) const {
    Steps steps;
    bool rounded = false;
    for (const UOp* node = results; std::ssize(steps) < kStepsMax; node = steps.back()) {
      const std::vector<const UOp*>& users = users_.at(node);
      if (users.size() != 1) break;
      const bool rounds = users[0]->op == Op::kCast && IsFloatOf16(users[0]->dtype);
      if (rounded ? !IsOfLongDims(users[0], node) : !rounds && !IsRearranged(users[0])) break;
      steps.push_back(users[0]);
      rounded = rounded || rounds;
    }
    return rounded ? steps : Steps{};
  }

 private:
  bool Complete(const UOp* sum, GradientSum& found) {
    const auto is_sum_of_products = [](const UOp* node) {
      return IsSum(node) && node->src[0]->op == Op::kMul;
    };
    const UOp* end = nullptr;
    if (!FindSteps(
            found.quotient->src[0],
            [&](const UOp* node) { return is_sum_of_products(node) && (end = node) != nullptr; },
            visits_left_, found.to_gradient))
      return false;
    found.columns_sum = end;
    const UOp* const terms = end->src[0];
    for (const int side : {0, 1}) {
      const UOp* const gradient = RepeatedOf(terms->src[side]);
      const auto results = sums_of_.find(terms->src[1 - side]);
      if (gradient == nullptr || results == sums_of_.end()) continue;
      found.repeated_of_results = terms->src[side];
      int looked_at = 0;
      for (const UOp* result : results->second) {
        if (++looked_at > kProductsMax || --visits_left_ < 0) break;
        if (result == end || result->shape != gradient->shape ||
            result->src[0]->shape != terms->shape)
          continue;
        found.results = result;
        found.keys_axis = ReduceOf(result).axes()[0];
        const auto factors = result->src[0]->src;
        const UOp* const weights = factors[factors[0] == terms->src[1 - side] ? 1 : 0];
        if (IsTransposed(sum, weights, found)) return true;
      }
    }
    return false;
  }

  // Whether dp is made of `columns_sum` as `factor`, of the results' terms, is made of the weights,
  // in the other direction: then a weight's gradient is the sum of what it was repeated for.
  bool IsTransposed(const UOp* sum, const UOp* factor, GradientSum& found) {
    const UOp* const narrow = RepeatedOf(factor);
    if (narrow == nullptr || narrow->shape != found.columns_sum->shape) return false;
    Steps steps;
    const UOp* const weights = found.weights;
    if (!FindSteps(
            narrow, [&](const UOp* node) { return node == weights; }, visits_left_, steps))
      return false;
    if (!AreOfFloats(steps) || !AreOfFloats(found.to_gradient) ||
        MovesBeyondFactors(steps, /*from_end=*/true) ||
        MovesBeyondFactors(found.to_gradient, /*from_end=*/false) ||
        FactorsOf(steps, weights) != FactorsOf(found.to_gradient, found.columns_sum))
      return false;
    for (const UOp* cast = factor; cast->op == Op::kCast; cast = cast->src[0])
      if (cast->dtype != DType::kF32 && !IsFloatOf16(cast->dtype)) return false;
    const int64_t keys = ReduceOf(sum).axes()[0];
    if (weights->shape[keys] == Dim(1) || narrow->shape[found.keys_axis] == Dim(1)) return false;
    std::vector<int64_t> identity(LongDims(weights->shape).size());
    for (size_t i = 0; i < identity.size(); ++i) identity[i] = static_cast<int64_t>(i);
    std::vector<int64_t> order = identity;
    if (!Rearrange(steps, order)) return false;
    found.order = order;
    if (order[LongDimsBefore(narrow->shape, found.keys_axis)] !=
        LongDimsBefore(weights->shape, keys))
      return false;
    return Rearrange(found.to_gradient, order) && order == identity;
  }

  absl::flat_hash_map<const UOp*, std::vector<const UOp*>> users_;
  absl::flat_hash_map<const UOp*, std::vector<const UOp*>> sums_of_;  // by a factor of their terms
  int64_t visits_left_;
};

// Whether the output's gradient is of 16 bits. Of f32 the kernel of queries' gradients then has one
// loop, for which its plan takes larger tiles, and spills.
bool IsOf16Bits(const GradientSum& found) {
  const UOp* gradient = found.repeated_of_results;
  for (int steps = 0; steps < kStepsMax && IsMovement(gradient->op); ++steps)
    gradient = gradient->src[0];
  return gradient->op == Op::kCast && IsFloatOf16(gradient->src[0]->dtype);
}

bool IsWorthIt(const UOp* sum, const GradientSum& found, const Target& target) {
  const auto scores = static_cast<double>(PaddedSize(sum->src[0]->shape)),
             columns = static_cast<double>(PaddedSize(found.results->shape));
  return kVisiblePart * scores >=
         kScoresOfColumn * columns +
             kScoresOfKernel * static_cast<double>(std::max<int64_t>(1, target.multiprocessors));
}

class Rebuilder {
 public:
  Rebuilder(Graph& graph, const Finder& finder,
            const absl::flat_hash_map<const UOp*, GradientSum>& sums)
      : g_(graph), sums_(sums) {
    for (const auto& [sum, found] : sums) {
      quotients_.emplace(found.quotient, &found);
      const Steps steps = finder.ToRounded(found.results);
      if (steps.empty()) continue;
      rounded_results_.emplace(found.results, steps.back());
      rounded_.emplace(steps.back(), Rounded{found.results, steps});
    }
  }

  absl::StatusOr<const UOp*> Run(const UOp* sink) {
    std::vector<const UOp*> open = {sink};
    while (!open.empty()) {
      const UOp* const node = open.back();
      const size_t before = open.size();
      if (!made_.contains(node))
        for (const UOp* need : NeedsOf(node))
          if (!made_.contains(need)) open.push_back(need);
      if (open.size() > before) continue;
      open.pop_back();
      if (made_.contains(node)) continue;
      if (g_.node_count() + kNodesOfASum > limits::kGraphNodesMax)
        return absl::ResourceExhaustedError(
            absl::StrCat("the graph needs over ", limits::kGraphNodesMax, " nodes"));
      made_[node] = Make(node);
    }
    return made_.at(sink);
  }

 private:
  // Results are computed from what the sum was computed from, so this ends.
  std::vector<const UOp*> NeedsOf(const UOp* node) const {
    if (const auto sum = sums_.find(node); sum != sums_.end()) {
      const GradientSum& found = sum->second;
      const auto rounded = rounded_results_.find(found.results);
      return {found.repeated_of_results,
              rounded == rounded_results_.end() ? found.results : rounded->second,
              found.sums_of_rows()};
    }
    if (const auto rounded = rounded_.find(node); rounded != rounded_.end())
      return {rounded->second.results};
    return {node->src.begin(), node->src.end()};
  }

  const UOp* Make(const UOp* node) {
    if (const auto sum = sums_.find(node); sum != sums_.end()) return MakeSum(node, sum->second);
    if (const auto quotient = quotients_.find(node); quotient != quotients_.end())
      return Alu(g_, Op::kFDiv, Gradient(*quotient->second), made_.at(node->src[1]));
    if (const auto rounded = rounded_.find(node); rounded != rounded_.end())
      return MakeRounded(rounded->second);
    return WithSourcesBecome(g_, node, made_);
  }

  // dp, of f32 all the way.
  const UOp* Gradient(const GradientSum& found) {
    const UOp *below = found.columns_sum, *value = made_.at(below);
    for (auto step = found.to_gradient.rbegin(); step != found.to_gradient.rend(); ++step) {
      const UOp* const node = *step;
      if (node->op == Op::kReshape) {
        value = Reshape(g_, value, node->shape);
      } else if (node->op == Op::kPermute) {
        value = Permute(g_, value, PermuteOf(node).axes());
      } else if (const UOp* const factor = FactorOf(node, below)) {
        const UOp* const by = made_.at(factor);
        value = node->op == Op::kMul
                    ? Mul(g_, value, Cast(g_, by, DType::kF32))
                    : Where(g_, by, value, Full(g_, ConstFloat(g_, DType::kF32, 0), value->shape));
      }
      below = node;
    }
    return value;
  }

  struct Rounded {
    const UOp* results;
    Steps steps;
  };

  // Rounded first, in the places of the sums, which the same kernel makes. What a kernel stores of
  // o is that, or where dimensions of 1 have come or gone, as it may be a result.
  const UOp* MakeRounded(const Rounded& rounded) {
    const DType dtype = rounded.steps.back()->dtype;
    const UOp* value = Cast(g_, made_.at(rounded.results), dtype);
    const UOp*& stored = stored_[rounded.results] = value;
    for (const UOp* step : rounded.steps) {
      const UOp* const before = value;
      if (step->op == Op::kReshape) value = Reshape(g_, value, step->shape);
      if (step->op == Op::kPermute) value = Permute(g_, value, PermuteOf(step).axes());
      if (stored == before && (value == before || IsOfLongDims(value, before))) stored = value;
    }
    return value;
  }

  // o, of f32 and in the places of the sums, by what is stored.
  const UOp* Results(const UOp* results) const {
    const auto stored = stored_.find(results);
    if (stored == stored_.end()) return made_.at(results);
    return Cast(g_, Reshape(g_, stored->second, results->shape), DType::kF32);
  }

  const UOp* MakeSum(const UOp* sum, const GradientSum& found) {
    const UOp* gradient = made_.at(found.repeated_of_results);
    std::vector<DType> casts;
    for (; gradient->op == Op::kCast; gradient = gradient->src[0]) casts.push_back(gradient->dtype);
    gradient = gradient->src[0];  // of the EXPAND
    for (auto cast = casts.rbegin(); cast != casts.rend(); ++cast)
      gradient = Cast(g_, gradient, *cast);
    const UOp* const results = Results(found.results);
    const auto columns = ReduceOf(found.columns_sum).axes();
    const UOp* rows =
        Reduce(g_, Op::kAdd, Mul(g_, gradient, results), {columns.begin(), columns.end()});
    // From the dimensions of `columns_sum` without its keys to those of the weights.
    const ShapeView terms = found.columns_sum->shape;
    std::vector<int64_t> order = found.order;
    order.erase(order.begin() + LongDimsBefore(terms, found.keys_axis));
    std::vector<int64_t> axes(order.size());
    for (size_t i = 0; i < axes.size(); ++i) axes[i] = static_cast<int64_t>(i);
    std::sort(axes.begin(), axes.end(), [&](int64_t a, int64_t b) { return order[a] < order[b]; });
    rows = Reshape(g_, rows, LongDims(terms, found.keys_axis));
    rows = Reshape(g_, Permute(g_, rows, axes), sum->shape);
    return Alu(g_, Op::kFDiv, rows, made_.at(found.sums_of_rows()));
  }

  Graph& g_;
  const absl::flat_hash_map<const UOp*, GradientSum>& sums_;
  absl::flat_hash_map<const UOp*, const GradientSum*> quotients_;
  absl::flat_hash_map<const UOp*, Rounded> rounded_;                      // by their last step
  absl::flat_hash_map<const UOp*, const UOp*> rounded_results_, stored_;  // by results: that step
  absl::flat_hash_map<const UOp*, const UOp*> made_;
};

}  // namespace

absl::StatusOr<const UOp*> SumOverColumns(Graph& graph, const UOp* sink, const Scores& scores,
                                          ScorePolicy policy, const Target& target,
                                          const GradientSumsSearch& search) {
  if (target.kind != TargetKind::kCuda || scores.attention_of.empty()) return sink;
  const std::vector<const UOp*> order = PostOrder(sink);
  Finder finder(order, search.visits_max);
  absl::flat_hash_map<const UOp*, GradientSum> sums;
  for (const UOp* node : order) {
    if (node->op != Op::kReduce || !scores.attention_of.contains(node->src[0])) continue;
    std::optional<GradientSum> found = finder.Find(node);
    if (!found || !(search.of_f32 || IsOf16Bits(*found)) ||
        (policy == ScorePolicy::kByCost && !IsWorthIt(node, *found, target)))
      continue;
    sums.emplace(node, *std::move(found));
  }
  if (sums.empty()) return sink;
  return Rebuilder(graph, finder, sums).Run(sink);
}

}  // namespace outboard::schedule
