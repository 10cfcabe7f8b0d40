#include "compiler/schedule/layout.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "compiler/ir/accessors.h"
#include "compiler/ir/build.h"
#include "compiler/optimize/cost.h"
#include "compiler/rewrite/rebuild.h"
#include "compiler/rewrite/rules/linear.h"
#include "compiler/schedule/padded_dims.h"

namespace outboard::schedule {
namespace {

using Axes = uint32_t;  // a set, by bit

// The axis of a row-major value that a step of `coefficient` elements moves along.
int AxisOf(ShapeView dims, int64_t coefficient) {
  int64_t stride = 1;
  for (int axis = static_cast<int>(dims.size()); axis-- > 0;) {
    const int64_t next = stride * PaddedSize(dims[axis]);
    if (PaddedSize(dims[axis]) > 1 && std::abs(coefficient) < next) return axis;
    stride = next;
  }
  return 0;
}

// The axes along which two ranges, one of them of a sum, move by the same distance.
Axes WindowedAxes(ShapeView dims, const UOp* place) {
  Axes windowed = 0;
  const LinearSum sum = LinearOf(place);
  const auto reduced = [](const UOp* term) { return IsRange(term, RangeKind::kReduce); };
  for (size_t i = 0; i < sum.terms.size(); ++i)
    for (size_t k = 0; k < i; ++k) {
      const auto& [a, by_a] = sum.terms[i];
      const auto& [b, by_b] = sum.terms[k];
      if (a->op == Op::kRange && b->op == Op::kRange && (reduced(a) || reduced(b)) &&
          std::abs(by_a) == std::abs(by_b))
        windowed |= Axes{1} << AxisOf(dims, by_a);
    }
  return windowed;
}

// The last axis that is not windowed goes behind those that are; empty where it is there already.
std::vector<int64_t> OrderFor(ShapeView dims, Axes windowed, int64_t channels_min) {
  if (windowed == 0) return {};
  int64_t channels = static_cast<int64_t>(dims.size()) - 1;
  while (channels > 0 && ((windowed >> channels & 1) != 0 || dims[channels] == Dim(1))) --channels;
  if (channels == 0 || PaddedSize(dims[channels]) < channels_min || windowed >> channels == 0)
    return {};
  std::vector<int64_t> order;
  for (int64_t axis = 0; axis < static_cast<int64_t>(dims.size()); ++axis)
    if (axis != channels) order.push_back(axis);
  order.push_back(channels);
  return order;
}

struct Place {
  const UOp* value;
  const UOp* index;
};

// What a kernel stores and loads of temporaries, and where.
std::vector<Place> PlacesIn(const LoweredKernel& kernel,
                            const absl::flat_hash_set<const UOp*>& temporaries) {
  std::vector<Place> places;
  for (const UOp* node : PostOrder(kernel.ast)) {
    if (node->op != Op::kIndex || node->src[0]->op != Op::kGlobal) continue;
    const UOp* const value = kernel.buffers[GlobalOfAccess(node).slot()];
    if (temporaries.contains(value)) places.push_back({value, node->src[1]});
  }
  return places;
}

std::vector<int64_t> Inverse(const std::vector<int64_t>& order) {
  std::vector<int64_t> inverse(order.size());
  for (size_t i = 0; i < order.size(); ++i) inverse[order[i]] = static_cast<int64_t>(i);
  return inverse;
}

}  // namespace

Layouts ChooseLayouts(const UOp* sink, const Choice& choice,
                      const std::vector<LoweredKernel>& kernels, const Target& target) {
  absl::flat_hash_set<const UOp*> temporaries(choice.kept.begin(), choice.kept.end());
  for (const UOp* result : sink->src) temporaries.erase(result);
  for (const UOp* scattered : choice.scattered) temporaries.erase(scattered);

  std::vector<std::vector<Place>> places;
  absl::flat_hash_map<const UOp*, Axes> windowed;
  for (const LoweredKernel& kernel : kernels) {
    places.push_back(PlacesIn(kernel, temporaries));
    for (const auto& [value, index] : places.back())
      windowed[value] |= WindowedAxes(value->shape, index);
  }
  Layouts layouts;
  for (const auto& [value, axes] : windowed)
    if (std::vector<int64_t> order = OrderFor(value->shape, axes, optimize::LanesMin(target));
        !order.empty())
      layouts[value] = std::move(order);
  for (bool changed = !layouts.empty(); changed;) {
    changed = false;
    for (const std::vector<Place>& kernel : places)
      for (const Place& from : kernel)
        for (const Place& to : kernel)
          if (from.index == to.index && layouts.contains(from.value) &&
              std::ranges::equal(from.value->shape, to.value->shape)) {
            const std::vector<int64_t> order = layouts.at(from.value);
            changed |= layouts.emplace(to.value, order).second;
          }
  }
  return layouts;
}

LaidOut ApplyLayouts(Graph& graph, const UOp* sink, const Choice& choice, const Layouts& layouts) {
  absl::flat_hash_map<const UOp*, const UOp*> read, kept;  // how a node is read; what is kept of it
  for (const UOp* node : PostOrder(sink)) {
    const UOp* const now = WithSourcesBecome(graph, node, read);
    read[node] = kept[node] = now;
    if (const auto layout = layouts.find(node); layout != layouts.end()) {
      kept[node] = Permute(graph, now, layout->second);
      read[node] = Permute(graph, kept[node], Inverse(layout->second));
    }
  }
  LaidOut out{read.at(sink), {}};
  for (const UOp* value : choice.kept) out.choice.kept.push_back(kept.at(value));
  for (const UOp* value : choice.scattered) out.choice.scattered.insert(kept.at(value));
  for (const UOp* value : choice.read_again) out.choice.read_again.insert(kept.at(value));
  return out;
}

}  // namespace outboard::schedule
