#include "compiler/schedule/fuse/row_sums.h"

#include <algorithm>
#include <vector>

#include "compiler/ir/accessors.h"
#include "compiler/ir/build.h"
#include "compiler/rewrite/rules/linear.h"
#include "compiler/rewrite/simplify.h"
#include "compiler/rewrite/substitute.h"

namespace outboard::schedule {
namespace {

// Below, a sum is read from a cache, and the product's kernel would only grow.
constexpr int64_t kRowsMin = 16 * kSumRows;

// A range of the product's kernel, and what counts as far in the sum's: a range that is summed over
// or, of another one, any part, as c / 64 is and c % 64.
struct Axis {
  const UOp* output = nullptr;  // of the product
  const UOp* other = nullptr;   // of the sum
  int64_t stride = 0;           // of the result in memory
  bool summed = false;

  int64_t extent() const { return RangeOf(output).extent(); }
};

bool DependsOnAny(const UOp* index, Sources ranges) {
  const std::vector<const UOp*> nodes = PostOrder(index);
  return std::any_of(ranges.begin(), ranges.end(), [&](const UOp* range) {
    return std::find(nodes.begin(), nodes.end(), range) != nodes.end();
  });
}

// What the sum loads at `index` is what the product stores at `place`: the axes of both, from the
// smallest stride on; none where they have no such, or where a range that is summed over decides
// where another axis is read, too.
std::vector<Axis> AxesOf(const UOp* place, const UOp* index, const UOp* sum) {
  const Sources summed = ReduceOf(sum).ranges();
  const LinearSum from = LinearOf(place), to = LinearOf(index);
  if (from.constant != to.constant || from.terms.size() != to.terms.size()) return {};
  std::vector<Axis> axes;
  for (const auto& [term, stride] : from.terms) {
    if (!IsRange(term, RangeKind::kOutput) || !term->src.empty()) return {};
    const UOp* other = nullptr;
    for (const auto& [t, s] : to.terms)
      if (s == stride) other = t;
    if (other == nullptr || other->vmin != 0 || other->vmax != RangeOf(term).extent() - 1 ||
        (other->op == Op::kRange && !other->src.empty()))
      return {};
    const bool is_summed = std::find(summed.begin(), summed.end(), other) != summed.end();
    if (!is_summed && DependsOnAny(other, summed)) return {};
    axes.push_back({term, other, stride, is_summed});
  }
  std::sort(axes.begin(), axes.end(),
            [](const Axis& a, const Axis& b) { return a.stride < b.stride; });
  return axes;
}

const UOp* LoadOf(const UOp* value, int64_t slot) {
  for (const UOp* node : PostOrder(value))
    if (node->op == Op::kLoad && GlobalOfAccess(node).slot() == slot) return node;
  return nullptr;
}

bool IsSumOfFloats(const UOp* sum) {
  if (ReduceOf(sum).op() != Op::kAdd || !IsFloat(sum->dtype) || ByteWidth(sum->dtype) > 4)
    return false;
  const std::vector<const UOp*> inside = PostOrder(sum->src[0]);
  return std::none_of(inside.begin(), inside.end(), [](const UOp* node) {
    return node->op == Op::kReduceLoop || node->op == Op::kVar;
  });
}

}  // namespace

std::optional<DividedSum> DivideRowSum(Graph& graph, const UOp* sum, int64_t slot,
                                       const UOp* place, const std::vector<const UOp*>& outputs,
                                       int64_t& next_id) {
  if (!IsSumOfFloats(sum)) return std::nullopt;
  const UOp* const load = LoadOf(sum->src[0], slot);
  if (load == nullptr) return std::nullopt;
  const std::vector<Axis> axes = AxesOf(place, load->src[0]->src[1], sum);
  // Columns stay, and there is nothing else.
  if (axes.size() != outputs.size() || axes.empty() || axes[0].stride != 1 || axes[0].summed)
    return std::nullopt;
  // Whatever else is as large would be read where the product waits for it.
  for (const UOp* node : PostOrder(sum->src[0]))
    if (node->op == Op::kLoad && GlobalOfAccess(node).slot() != slot &&
        GlobalOfAccess(node).elements() >= GlobalOfAccess(load).elements())
      return std::nullopt;
  // The value of the sum in the product's ranges, by way of new ranges. A RANGE of the sum and one
  // of the product are the same node if they have the same id and length, so without that step a
  // range that cannot be replaced (a running sum's own row) would look like one of the product's.
  Replacements to_fresh, to_output;
  for (const Axis& axis : axes) {
    const UOp* const fresh = graph.MakeChecked(
        Op::kRange, DType::kI64, {},
        {next_id++, axis.extent(), static_cast<int64_t>(RangeKind::kOutput)});
    to_fresh[axis.other] = fresh;
    to_output[fresh] = axis.output;
  }
  const UOp* const apart = Substitute(graph, sum->src[0], to_fresh);
  for (const UOp* node : PostOrder(apart))
    if (node->op == Op::kRange && !to_output.contains(node)) return std::nullopt;
  const UOp* const value = Substitute(graph, apart, to_output);
  for (const UOp* range : ReduceOf(sum).ranges())
    if (!to_fresh.contains(range)) return std::nullopt;

  // From the first axis that is summed over on, as far as these are dense.
  size_t begin = 0;
  while (begin < axes.size() && !axes[begin].summed) ++begin;
  size_t end = begin;
  int64_t rows = 1;
  while (end < axes.size() && axes[end].summed && axes[end].stride == axes[begin].stride * rows)
    rows *= axes[end++].extent();
  if (rows < kRowsMin) return std::nullopt;

  DividedSum divided;
  const auto times = [&](const UOp* number, int64_t by) {
    return Mul(graph, number, ConstIndex(graph, by));
  };
  const int64_t blocks = (rows + kSumRows - 1) / kSumRows;
  const UOp* const block =
      graph.MakeChecked(Op::kRange, DType::kI64, {},
                        {next_id++, blocks, static_cast<int64_t>(RangeKind::kReduce)});
  const UOp *row = ConstIndex(graph, 0), *stored_at = row, *read_at = row;
  int64_t elements = 1;
  for (size_t i = 0; i < axes.size(); ++i) {
    if (i >= begin && i < end) {
      row = Add(graph, row, times(axes[i].output, axes[i].stride / axes[begin].stride));
      if (i + 1 < end) continue;
      const UOp* const number = Alu(graph, Op::kIDiv, row, ConstIndex(graph, kSumRows));
      stored_at = Add(graph, stored_at, times(number, elements));
      read_at = Add(graph, read_at, times(block, elements));
      divided.ranges.push_back(block);
      elements *= blocks;
      continue;
    }
    stored_at = Add(graph, stored_at, times(axes[i].output, elements));
    read_at = Add(graph, read_at, times(axes[i].other, elements));
    if (axes[i].summed) divided.ranges.push_back(axes[i].other);
    elements *= axes[i].extent();
  }
  divided.elements = elements;
  divided.place = Simplify(graph, stored_at);
  divided.read_at = Simplify(graph, read_at);
  divided.value = Cast(graph, Simplify(graph, value), DType::kF32);
  return divided;
}

}  // namespace outboard::schedule
