#include "compiler/optimize/threads/odd_rows.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "compiler/kernel/affine.h"

namespace outboard::codegen {
namespace {

// The one range of an index that has this extent; -1: there are none, -2: several.
int RangeOfExtent(const LoopNest& kernel, const UOp* index, int64_t extent) {
  int found = -1;
  for (RangeSet deps = kernel.DepsOf(index); deps != 0; deps &= deps - 1) {
    const int range = std::countr_zero(deps);
    if (kernel.ranges[static_cast<size_t>(range)].extent != extent) continue;
    if (found >= 0) return -2;
    found = range;
  }
  return found;
}

}  // namespace

std::optional<bool> BeginWithinVector(const LoopNest& kernel, int64_t extent, int64_t lanes) {
  const auto divisor = static_cast<uint64_t>(lanes);
  AffineForms forms;
  std::optional<Affine> begin;  // of rows, less multiples of a vector
  for (const UOp* node : kernel.nodes) {
    if (node->op != Op::kLoad && node->op != Op::kStore) continue;
    const UOp* const index = node->src[0]->src[1];
    const int range = RangeOfExtent(kernel, index, extent);
    if (range == -1) continue;
    if (range < 0) return std::nullopt;
    const UOp* const own = kernel.ranges[static_cast<size_t>(range)].node;
    const Affine& form = forms.Of(index);
    if (form.CoefficientOf(own) != 1) return std::nullopt;
    Affine here{.constant = form.constant % divisor, .terms = {}};
    for (const auto& [term, coefficient] : form.terms) {
      if (term == own) continue;
      if ((kernel.DepsOf(term) >> range & 1) != 0) return std::nullopt;
      if (coefficient % divisor != 0) here.terms.emplace_back(term, coefficient % divisor);
    }
    if (begin && (begin->constant != here.constant || begin->terms != here.terms))
      return std::nullopt;
    begin = std::move(here);
  }
  if (!begin) return std::nullopt;
  return begin->constant != 0 || !begin->terms.empty();
}

}  // namespace outboard::codegen
