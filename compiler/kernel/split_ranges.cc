#include "compiler/kernel/split_ranges.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "compiler/ir/accessors.h"
#include "compiler/ir/build.h"
#include "compiler/kernel/decompose_math.h"
#include "compiler/rewrite/rules/linear.h"
#include "compiler/rewrite/simplify.h"
#include "compiler/rewrite/substitute.h"
#include "compiler/split_period.h"

namespace outboard::codegen {
namespace {

// By range: the only number that divides a sum in which it occurs; 0 where there are several.
using Periods = absl::flat_hash_map<const UOp*, int64_t>;

// The numerators of quotients that an index moves by as much as by the loop of a sum: the quotient
// is the place of a window, and the numerator's remainder chooses other elements.
absl::flat_hash_set<const UOp*> NumeratorsOfWindows(const std::vector<const UOp*>& nodes) {
  absl::flat_hash_set<const UOp*> numerators;
  for (const UOp* node : nodes) {
    if (node->op != Op::kIndex) continue;
    const LinearSum index = LinearOf(node->src[1]);
    for (const auto& [quotient, stride] : index.terms)
      for (const auto& [range, step] : index.terms)
        if (quotient->op == Op::kIDiv && IsRange(range, RangeKind::kReduce) &&
            std::abs(step) == std::abs(stride))
          numerators.insert(quotient->src[0]);
  }
  return numerators;
}

Periods PeriodsOf(const UOp* sink) {
  const std::vector<const UOp*> nodes = PostOrder(sink);
  const absl::flat_hash_set<const UOp*> windows = NumeratorsOfWindows(nodes);
  Periods periods;
  for (const UOp* node : nodes) {
    if ((node->op != Op::kIDiv && node->op != Op::kMod) || !node->src[1]->is_const()) continue;
    const int64_t divisor = node->src[1]->int_value();
    const LinearSum numerator = LinearOf(node->src[0]);
    if (divisor < 2 || (numerator.terms.size() < 2 && !windows.contains(node->src[0]))) continue;
    for (const auto& [term, coefficient] : numerator.terms) {
      if (term->op != Op::kRange || coefficient % divisor == 0) continue;
      const auto [known, is_new] = periods.emplace(term, divisor);
      if (!is_new && known->second != divisor) known->second = 0;
    }
  }
  return periods;
}

bool CanSplit(const UOp* range, int64_t period) {
  return IsRange(range, RangeKind::kOutput) && range->src.empty() && period >= 2 &&
         period <= kSplitPeriodMax && RangeOf(range).extent() % period == 0 &&
         RangeOf(range).extent() > period;
}

const UOp* RangeWith(Graph& g, const UOp* range, int64_t id, int64_t extent) {
  return g.MakeChecked(Op::kRange, DType::kI64, range->src,
                       {id, extent, static_cast<int64_t>(RangeOf(range).kind())});
}

}  // namespace

const UOp* SplitRanges(Graph& graph, const UOp* sink) {
  const Periods periods = PeriodsOf(sink);
  const auto period_of = [&](const UOp* range) {
    const auto found = periods.find(range);
    return found != periods.end() && CanSplit(range, found->second) ? found->second : 1;
  };
  std::vector<const UOp*> ranges;
  for (const UOp* node : PostOrder(sink))
    if (node->op == Op::kRange) ranges.push_back(node);
  if (std::all_of(ranges.begin(), ranges.end(), [&](const UOp* r) { return period_of(r) == 1; }))
    return sink;

  absl::flat_hash_map<const UOp*, const UOp*> by;
  for (const UOp* range : ranges) {
    const int64_t id = RangeOf(range).id(), period = period_of(range);
    // Each range gets two ids, so that the order of the loops stays.
    if (period == 1) {
      by[range] = RangeWith(graph, range, 2 * id, RangeOf(range).extent());
      continue;
    }
    const UOp* const outer = RangeWith(graph, range, 2 * id, RangeOf(range).extent() / period);
    const UOp* const inner = RangeWith(graph, range, 2 * id + 1, period);
    by[range] = Add(graph, Mul(graph, outer, ConstIndex(graph, period)), inner);
  }
  const UOp* const split = Substitute(graph, sink, by);
  return Simplify(graph, CopiedTo(graph, PostOrder(split)));
}

}  // namespace outboard::codegen
