#include "compiler/optimize/operands/online.h"

#include <algorithm>
#include <optional>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "compiler/ir/accessors.h"
#include "compiler/ir/build.h"
#include "compiler/kernel/decompose_math.h"
#include "compiler/rewrite/substitute.h"

namespace outboard::codegen {
namespace {

// A term with more factors and products has no running value, and none of them comes out of its
// sum. A square has its factor twice, so a few products may have as many factors as one likes.
constexpr int kFactorsMax = 256;

bool IsOver(const UOp* node, const LoopNest& kernel, int range) {
  return node->op == Op::kReduceLoop && node->src.size() == 2 &&
         node->src[1] == kernel.ranges[range].node;
}

// Reductions over the range that `root` is computed with.
std::vector<const UOp*> ReductionsIn(const UOp* root, const LoopNest& kernel, int range) {
  std::vector<const UOp*> found;
  for (const UOp* node : PostOrder(root))
    if (IsOver(node, kernel, range)) found.push_back(node);
  return found;
}

// The value below all casts between float types; `node` itself if it is no such cast.
const UOp* BeforeCasts(const UOp* node) {
  while (node->op == Op::kCast && IsFloat(node->dtype) && IsFloat(node->src[0]->dtype))
    node = node->src[0];
  return node;
}

// The same of a product, where the casts have room for whatever it is: with another factor than an
// exponential it may be large.
const UOp* ProductBeforeCasts(const UOp* node) {
  const UOp* const before = BeforeCasts(node);
  if (before->op != Op::kMul) return node;
  for (const UOp* cast = node; cast != before; cast = cast->src[0])
    if (cast->dtype != DType::kBF16 && cast->dtype != DType::kF32) return node;
  return before;
}

// The one factor of a product that `is`; nullptr for none, or several.
template <typename Is>
const UOp* OnlyFactor(const UOp* product, const Is& is) {
  const UOp* found = nullptr;
  std::vector<const UOp*> stack = {product};
  for (int factors = 0; !stack.empty() && factors < kFactorsMax; ++factors) {
    const UOp* const factor = stack.back();
    stack.pop_back();
    if (is(factor)) {
      if (found != nullptr) return nullptr;
      found = factor;
    } else if (factor->op == Op::kMul) {
      stack.insert(stack.end(), factor->src.begin(), factor->src.end());
    }
  }
  return stack.empty() ? found : nullptr;
}

// The maximum by whose exponential all terms are multiplied, and on which nothing else of them
// depends; nullptr if there is none.
const UOp* MaximumOf(const UOp* term, const LoopNest& kernel, int range,
                     const absl::flat_hash_map<const UOp*, const UOp*>& exponentials,
                     bool rounded) {
  const UOp* max = nullptr;
  std::vector<const UOp*> stack = {term};
  absl::flat_hash_set<const UOp*> others;
  for (int factors = 0; !stack.empty(); ++factors) {
    if (factors == kFactorsMax) return nullptr;
    const UOp* factor = stack.back();
    stack.pop_back();
    if (rounded) factor = ProductBeforeCasts(factor);  // as WithoutFactors may leave it
    if (const auto found = exponentials.find(rounded ? BeforeCasts(factor) : factor);
        max == nullptr && found != exponentials.end()) {
      max = found->second;
    } else if (factor->op == Op::kMul) {
      stack.insert(stack.end(), factor->src.begin(), factor->src.end());
    } else if (factor->op == Op::kFDiv) {
      stack.push_back(factor->src[0]);
      others.insert(factor->src[1]);
    } else {
      others.insert(factor);
    }
  }
  for (const UOp* other : others)
    if (!ReductionsIn(other, kernel, range).empty()) return nullptr;
  return max;
}

// How many nodes that `root` is made of, without what is inside of those that are replaced, have
// `part` as a source.
int UsesOf(const UOp* root, const UOp* part,
           const absl::flat_hash_map<const UOp*, const UOp*>& replaced) {
  int uses = 0;
  std::vector<const UOp*> open = {root};
  absl::flat_hash_set<const UOp*> seen = {root};
  while (!open.empty()) {
    const UOp* const node = open.back();
    open.pop_back();
    if (replaced.contains(node)) continue;
    for (const UOp* source : node->src) {
      uses += source == part ? 1 : 0;
      if (source != part && seen.insert(source).second) open.push_back(source);
    }
  }
  return uses;
}

}  // namespace

absl::flat_hash_map<const UOp*, const UOp*> ExponentialsOf(const LoopNest& kernel, int range) {
  absl::flat_hash_map<const UOp*, const UOp*> found;
  const absl::flat_hash_set<const UOp*> nodes(kernel.nodes.begin(), kernel.nodes.end());
  for (const UOp* sum : kernel.nodes) {
    // Of a type in which a sum may be rescaled often.
    if (sum->op != Op::kAdd || !IsFloat(sum->dtype) || ByteWidth(sum->dtype) < 4) continue;
    for (const int side : {0, 1}) {
      const UOp *const minus = sum->src[side], *const x = sum->src[1 - side];
      if (minus->op != Op::kNeg || !IsOver(minus->src[0], kernel, range) ||
          ReduceOf(minus->src[0]).op() != Op::kMax || minus->src[0]->src[0] != x)
        continue;
      // As arithmetic: equal nodes are one.
      const UOp* const exponential =
          DecomposeTranscendentals(*kernel.graph, Alu(*kernel.graph, Op::kExp, sum));
      if (nodes.contains(exponential)) found[exponential] = minus->src[0];
    }
  }
  return found;
}

const UOp* WithoutFactors(Graph& graph, const LoopNest& kernel, int range, bool rounded) {
  absl::flat_hash_map<const UOp*, const UOp*> by;
  absl::flat_hash_map<const UOp*, bool> asked;  // a factor may be there often
  const auto comes_out = [&](const UOp* factor) {
    const auto [known, is_new] = asked.try_emplace(factor, false);
    if (is_new)
      known->second = !(kernel.DepsOf(factor) >> range & 1) &&
                      !ReductionsIn(factor, kernel, range).empty();
    return known->second;
  };
  const auto exponentials = ExponentialsOf(kernel, range);
  const auto is_quotient = [&](const UOp* factor) {
    return factor->op == Op::kFDiv && comes_out(factor->src[1]) &&
           exponentials.contains(factor->src[0]);
  };
  for (const UOp* node : kernel.nodes) {
    if (!IsOver(node, kernel, range) || ReduceOf(node).op() != Op::kAdd) continue;
    std::vector<const UOp*> stack = {node->src[0]}, stay, times, divided_by;
    const auto made = [&](const UOp* factor) { return Substitute(graph, factor, by); };
    // A factor that is rounded after it is divided, alone or as one of a product: without that.
    const UOp* first_rounded = nullptr;
    int factors = 0;
    for (; !stack.empty() && factors < kFactorsMax; ++factors) {
      const UOp* const factor = stack.back();
      stack.pop_back();
      if (rounded && first_rounded == nullptr && factor->op == Op::kCast) {
        const UOp* quotient = BeforeCasts(factor);
        if (!is_quotient(quotient)) quotient = OnlyFactor(ProductBeforeCasts(factor), is_quotient);
        // Of p (p + 1) no factor would be left to divide by.
        if (quotient != nullptr && UsesOf(factor, quotient, by) == 1) {
          auto without = by;
          without[quotient] = made(quotient->src[0]);
          first_rounded = Substitute(graph, factor, without);
          divided_by.push_back(quotient->src[1]);
          continue;
        }
      }
      if (comes_out(factor)) {
        times.push_back(factor);
      } else if (factor->op == Op::kMul && !exponentials.contains(factor)) {
        stack.insert(stack.end(), factor->src.begin(), factor->src.end());
      } else if (factor->op == Op::kFDiv && comes_out(factor->src[1])) {
        stack.push_back(factor->src[0]);
        divided_by.push_back(factor->src[1]);
      } else {
        stay.push_back(factor);
      }
    }
    if (!stack.empty() || (times.empty() && divided_by.empty())) continue;
    if (stay.empty() && first_rounded == nullptr) continue;
    const UOp* term = nullptr;
    const auto multiply = [&](const UOp* factor) {
      term = term == nullptr ? factor : Mul(graph, term, factor);
    };
    if (first_rounded != nullptr) multiply(first_rounded);
    for (const UOp* factor : stay) multiply(made(factor));
    std::vector<const UOp*> src(node->src.begin(), node->src.end());
    src[0] = term;
    const UOp* sum = graph.MakeChecked(Op::kReduceLoop, node->dtype, src, node->arg);
    for (const UOp* factor : divided_by) sum = Alu(graph, Op::kFDiv, sum, made(factor));
    for (const UOp* factor : times) sum = Mul(graph, sum, made(factor));
    // Of no terms it is 0, whatever these are.
    if (const UOp* const end = kernel.ranges[range].end(); end != nullptr && end->vmin < 1)
      sum = Where(graph, Alu(graph, Op::kCmpLt, ConstIndex(graph, 0), end), sum,
                  ConstOf(graph, node->dtype, 0));
    by[node] = sum;
  }
  std::vector<const UOp*> stores;
  for (const UOp* store : kernel.stores) stores.push_back(Substitute(graph, store, by));
  return Sink(graph, stores);
}

absl::StatusOr<Online> PhasesOf(const LoopNest& kernel, int range, int64_t block, bool rounded) {
  const auto illegal = [](const auto&... why) {
    return absl::InvalidArgumentError(absl::StrCat(why...));
  };
  Online online{.range = range, .block = block};
  const auto exponentials = ExponentialsOf(kernel, range);
  absl::flat_hash_map<const UOp*, size_t> phase_of;
  for (const UOp* node : kernel.nodes) {
    if (node->op != Op::kReduceLoop) continue;
    const std::vector<const UOp*> inside = ReductionsIn(node, kernel, range);
    if (!IsOver(node, kernel, range)) {
      if (!inside.empty() && !(kernel.DepsOf(node) & ~kernel.OutputSet()))
        return illegal("a reduction over another loop waits for the loop's");
      continue;
    }
    const Op op = ReduceOf(node).op();
    if (op != Op::kAdd && op != Op::kMax) return illegal("a product has no running value");
    const UOp* const max =
        op == Op::kAdd ? MaximumOf(node->src[0], kernel, range, exponentials, rounded) : nullptr;
    size_t phase = 0;
    for (const UOp* needed : inside) {
      if (needed == node) continue;
      // What a maximum itself needs is done before it.
      phase = std::max(phase, phase_of.at(needed) + (max == nullptr ? 1 : 0));
    }
    if (max != nullptr) online.max_of[node] = max;
    phase_of[node] = phase;
  }
  for (const UOp* node : kernel.nodes)
    if (const auto found = exponentials.find(node); found != exponentials.end())
      online.exponential_of.try_emplace(found->second, node);
  for (size_t g = 0; g < kernel.groups.size(); ++g) {
    const ReduceGroup& group = kernel.groups[g];
    if (std::find(group.ranges.begin(), group.ranges.end(), range) == group.ranges.end()) continue;
    if (group.ranges.size() > 1 || (group.deps & ~kernel.OutputSet()))
      return illegal("a reduction over the loop is over others, or inside of one");
    const size_t phase = phase_of.at(group.nodes[0]);
    for (const UOp* node : group.nodes)
      if (phase_of.at(node) != phase) return illegal("reductions of one group are of two phases");
    if (online.phases.size() <= phase) online.phases.resize(phase + 1);
    online.phases[phase].push_back(g);
  }
  return online;
}

size_t OnlineLevel(const LoopNest& kernel, const LoopPlan& plan) {
  const RangeSet rows = kernel.DepsOf(plan.panels[0].value) & kernel.OutputSet();
  return std::max(plan.LevelOf(rows), static_cast<size_t>(plan.task_loops));
}

StageLayout LayOutCarried(const LoopNest& kernel, const LoopPlan& plan, const UOp* reduction,
                          size_t level) {
  return LayOut(kernel, plan, Stage{reduction, level});
}

}  // namespace outboard::codegen
