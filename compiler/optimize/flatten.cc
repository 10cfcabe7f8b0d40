#include "compiler/optimize/flatten.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "base/check.h"
#include "compiler/ir/accessors.h"
#include "compiler/ir/build.h"
#include "compiler/ir/expr.h"

namespace outboard::codegen {
namespace {

constexpr int64_t kBlockVectorsMax = 6;  // more leave no registers for a tile
constexpr double kLeastGain = 1.2;       // in vectors of arithmetic
constexpr int64_t kLeastRow = 6;         // shorter rows would be loaded in too many parts

// The index with p for both ranges; nullptr where it is not of the form that pays.
const UOp* FlatIndex(Graph& g, const Affine& form, const UOp* a, const UOp* b, const UOp* p,
                     const absl::flat_hash_map<const UOp*, const UOp*>& made, bool& contiguous) {
  const auto extent = static_cast<uint64_t>(RangeOf(b).extent());
  const uint64_t ca = form.CoefficientOf(a), cb = form.CoefficientOf(b);
  if (cb > 1 || (cb == 0 && ca != 0)) return nullptr;
  const Expr place(g, p);
  Expr sum = place.like(form.constant);
  for (const auto& [term, coefficient] : form.terms)
    if (term != a && term != b) sum = sum + place.of(made.at(term)) * coefficient;
  if (cb == 0) return sum.node();
  if (ca == extent) {
    contiguous = true;
    return (sum + place * 1).node();
  }
  return (sum + place / extent * ca + place % extent * 1).node();
}

}  // namespace

int64_t VectorsOfWholeRows(int64_t length, int64_t extent, int lanes) {
  for (int64_t n = 1; n <= kBlockVectorsMax; ++n)
    if (n * lanes % length == 0 || n * lanes >= extent) return n;
  return 0;
}

const UOp* FlattenRows(Graph& g, const LoopNest& kernel, int inner, const Target& target) {
  if (inner < 1 || target.vector_bytes < 64) return nullptr;  // loading in parts needs masks
  const Range &b = kernel.ranges[inner], &a = kernel.ranges[inner - 1];
  if (a.end() != nullptr || b.end() != nullptr) return nullptr;
  if (a.reduce != b.reduce || a.sequence || b.sequence || b.extent < kLeastRow) return nullptr;
  for (const ReduceGroup& group : kernel.groups)
    if (kernel.IsNested(group)) return nullptr;
  for (const DType dtype : kernel.slot_dtypes)
    if (dtype != DType::kVoid && dtype != DType::kF32) return nullptr;
  const int lanes = target.vector_bytes / 4;
  const double gain =
      static_cast<double>((b.extent + lanes - 1) / lanes * lanes) / static_cast<double>(b.extent);
  if (gain < kLeastGain || VectorsOfWholeRows(b.extent, a.extent * b.extent, lanes) == 0)
    return nullptr;

  const RangeSet both = RangeSet{1} << inner | RangeSet{1} << (inner - 1);
  const UOp* const p = g.MakeChecked(
      Op::kRange, DType::kVoid, {},
      {RangeOf(b.node).id(), a.extent * b.extent, static_cast<int64_t>(RangeOf(b.node).kind())});
  AffineForms forms;
  absl::flat_hash_map<const UOp*, const UOp*> made;
  bool contiguous = false;
  for (const UOp* node : kernel.nodes) {
    if (node == a.node || node == b.node) continue;
    if (node->op == Op::kIndex) {
      const Affine& form = forms.Of(node->src[1]);
      for (const auto& [term, coefficient] : form.terms)
        if (term != a.node && term != b.node && (kernel.DepsOf(term) & both)) return nullptr;
      const UOp* const index = FlatIndex(g, form, a.node, b.node, p, made, contiguous);
      if (index == nullptr) return nullptr;
      made[node] = g.MakeChecked(Op::kIndex, DType::kVoid, {made.at(node->src[0]), index});
      continue;
    }
    if (IsAffineOp(node) && (kernel.DepsOf(node) & both))
      continue;  // may be seen by indices only: see below
    std::vector<const UOp*> src;
    int folded = 0;
    for (const UOp* source : node->src) {
      if (node->op == Op::kReduceLoop && (source == a.node || source == b.node)) {
        if (folded++ == 0) src.push_back(p);
        continue;
      }
      const auto it = made.find(source);
      if (it == made.end()) return nullptr;
      src.push_back(it->second);
    }
    if (folded == 1) return nullptr;
    made[node] = g.MakeChecked(node->op, node->dtype, src, node->arg);
  }
  if (!contiguous) return nullptr;
  std::vector<const UOp*> stores;
  for (const UOp* store : kernel.stores) stores.push_back(made.at(store));
  return Sink(g, stores);
}

}  // namespace outboard::codegen
