#include "compiler/schedule/attention.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "compiler/ir/accessors.h"
#include "compiler/schedule/padded_dims.h"

namespace outboard::schedule {
namespace {

// From which length of a row it takes less time to compute scores again than to store them
// (docs/measurements/2026-11-24-online.md). Results alone need them once. With gradients attention
// computes them three times and those of its gradients twice, instead of once each; masks of
// positions save half of that. In terms of the width, too: computing costs that much, storing does
// not.
constexpr int64_t kRowOfResults = 128;
constexpr int64_t kRowOfMaskedGradients = 256;
constexpr int64_t kRowOfGradients = 1024, kWidthsOfGradients = 8;
constexpr int64_t kWidthOfResults = 128;
// Panels cast numbers of 8 or 16 bits wherever they read them: that pays where a mask saves half.
constexpr int64_t kRowOfMaskedNarrowGradients = 512;
// So many scores (256 MiB of f32, and half of that for weights) of rows so long are computed again
// even where that takes more time, some twice of it with a matrix unit: they grow with the square.
constexpr double kScoresKept = 64 << 20;
constexpr int64_t kRowKept = 4096;
// Logits with their gradients begin with one product, which is computed three times: that takes
// less time only where they are far larger than any cache, and not wide.
constexpr double kLogits = 24 << 20;
constexpr int64_t kWidthOfLogits = 512;
// On blocks of threads with matrix units scores cost less than their way to memory and back, for
// rows of a few tiles (compiler/program/online/plan.h). Wider sums have no room in registers. Those
// of f32, by three products, take as much time as they save where nothing is masked, and save their
// memory; wider ones take more.
constexpr int64_t kRowOnBlocks = 64, kWidthOnBlocks = 256, kWidthOfF32OnBlocks = 128;

double Elements(const UOp* node) { return static_cast<double>(PaddedSize(node->shape)); }

// A product of matrices with more elements than either has, before they are cast to the type that
// is summed. With `on_blocks`, dimensions may be made of VARs, but for the one that is summed;
// panels have numbers for all. Of keys in parts (`few_rows`) it need not be larger.
bool IsLargeProduct(const UOp* node, bool on_blocks, bool few_rows) {
  if (node->op != Op::kReduce || ReduceOf(node).op() != Op::kAdd ||
      ReduceOf(node).axes().size() != 1 || !IsFloat(node->dtype) || node->src[0]->op != Op::kMul)
    return false;
  const bool has_numbers = on_blocks ? node->src[0]->shape[ReduceOf(node).axes()[0]].is_const()
                                     : IsStatic(node->shape) && IsStatic(node->src[0]->shape);
  if (!has_numbers) return false;
  double elements = 0;
  for (const UOp* matrix : node->src[0]->src) {
    while (IsMovement(matrix->op) || matrix->op == Op::kCast) matrix = matrix->src[0];
    elements = std::max(elements, Elements(matrix));
  }
  return few_rows || Elements(node) > elements;
}

// Whether one of a product's factors is a number that `is_meant` holds of, cast to what is summed:
// also one that was computed in f32 and cast to it.
template <typename IsMeant>
bool HasFactorOf(const UOp* product, IsMeant is_meant) {
  return std::any_of(product->src[0]->src.begin(), product->src[0]->src.end(),
                     [&](const UOp* operand) {
                       while (!is_meant(operand->dtype)) {
                         if (!IsMovement(operand->op) && operand->op != Op::kCast) return false;
                         operand = operand->src[0];
                       }
                       return true;
                     });
}

bool IsBf16(DType dtype) { return dtype == DType::kBF16; }
// Numbers of 8 or 16 bits cost panels their casts.
bool IsNarrow(DType dtype) { return dtype != DType::kBool && ByteWidth(dtype) < 4; }

// A product of two numbers of bf16, or of f16, cast to f32. One may be an integer of 8 bits, of
// which each is a number of both.
bool IsOfSmallFloats(const UOp* product) {
  bool has_float = false;
  for (const UOp* operand : product->src[0]->src) {
    while (IsMovement(operand->op)) operand = operand->src[0];
    if (operand->op != Op::kCast) return false;
    const DType dtype = operand->src[0]->dtype;
    const bool is_float = IsFloatOf16(dtype);
    if (!is_float && dtype != DType::kI8 && dtype != DType::kU8) return false;
    has_float = has_float || is_float;
  }
  return has_float;
}

// A product of two numbers of f32, none of which is a smaller one that was cast; but one may be an
// integer of 8 bits.
bool IsOfF32(const UOp* product) {
  bool has_float = false;
  for (const UOp* operand : product->src[0]->src) {
    while (IsMovement(operand->op)) operand = operand->src[0];
    if (operand->dtype != DType::kF32) return false;
    const bool is_cast = operand->op == Op::kCast;
    if (is_cast && operand->src[0]->dtype != DType::kI8 && operand->src[0]->dtype != DType::kU8)
      return false;
    has_float = has_float || !is_cast;
  }
  return has_float;
}

// Scores that are computed from each other, element by element.
struct Family {
  bool has_max = false;     // of rows
  bool stored = false;      // since something else is done with them
  int products = 1;         // that they begin with: with gradients of attention one more
  int ends = 0;             // products with another matrix
  bool masked = false;      // by positions
  int64_t row = INT64_MAX;  // the least length
  bool of_bf16 = false;     // one of the products is
  bool of_narrow = false;   // one is of numbers of 8 or 16 bits
  bool small = true;        // all products are of bf16 or f16
  bool of_f32 = true;       // all are of f32
  bool in_parts = false;    // of keys (keys/key_parts.h)
  double elements = 0;      // of one product
  int64_t width = 0;        // of the matrices that products are of, at most
};

// Whether it depends on positions alone: the condition of a mask that is no input.
bool IsOfPositions(const UOp* condition) {
  std::vector<const UOp*> stack = {condition};
  absl::flat_hash_set<const UOp*> seen;
  bool position = false;
  while (!stack.empty()) {
    const UOp* const node = stack.back();
    stack.pop_back();
    if (!seen.insert(node).second) continue;
    if (node->op == Op::kIota)
      position = true;
    else if (!IsMovement(node->op) && !IsAlu(node->op) && node->op != Op::kCast &&
             !node->is_const())
      return false;
    stack.insert(stack.end(), node->src.begin(), node->src.end());
  }
  return position;
}

class Finder {
 public:
  Finder(ScorePolicy policy, const Target& target,
         const absl::flat_hash_set<const UOp*>& scores_of_parts)
      : by_cost_(policy == ScorePolicy::kByCost),
        has_matrix_unit_(target.bf16 == Bf16Products::kTiles),
        has_blocks_(target.block_threads > 1) {
    // With the products that they begin with.
    std::vector<const UOp*> open(scores_of_parts.begin(), scores_of_parts.end());
    while (!open.empty()) {
      const UOp* const node = open.back();
      open.pop_back();
      if (of_parts_.insert(node).second &&
          (IsMovement(node->op) || IsAlu(node->op) || node->op == Op::kCast))
        open.insert(open.end(), node->src.begin(), node->src.end());
    }
  }

  Scores Run(const UOp* sink) {
    std::vector<const UOp*> order = PostOrder(sink);
    order.pop_back();  // the SINK
    for (const UOp* node : order) Visit(node);
    for (const UOp* result : sink->src)
      if (const auto found = family_of_.find(result); found != family_of_.end())
        FamilyOf(found->second).stored = true;
    Scores scores;
    absl::flat_hash_map<int, int> attention_of;  // by root
    for (const UOp* node : order) {
      const auto found = family_of_.find(node);
      if (found == family_of_.end() || wide_.contains(node)) continue;
      const Family& family = FamilyOf(found->second);
      if (!family.has_max || family.ends == 0 || family.stored || (by_cost_ && !IsCheaper(family)))
        continue;
      scores.attention_of[node] =
          attention_of.emplace(Root(found->second), static_cast<int>(attention_of.size()))
              .first->second;
    }
    if (!of_parts_.empty()) AddJoins(order, scores);
    return scores;
  }

 private:
  // What joins the parts of keys, up to the last quotient: numbers of each part, a few dozen of
  // them, which are not worth kernels of their own.
  void AddJoins(const std::vector<const UOp*>& order, Scores& scores) const {
    // Constants; what is stored of parts, and made of that.
    absl::flat_hash_set<const UOp*> known, joins;
    for (const UOp* node : order) {
      if (node->op == Op::kContiguous) {
        const UOp* reduce = node->src[0];
        while (IsMovement(reduce->op)) reduce = reduce->src[0];
        if (reduce->op != Op::kReduce) continue;
        if (const auto family = family_of_.find(reduce->src[0]);
            family != family_of_.end() && FamilyOf(family->second).in_parts)
          joins.insert(node);
        continue;
      }
      if (node->is_const() || (IsMovement(node->op) && known.contains(node->src[0]))) {
        known.insert(node);
        continue;
      }
      const bool may = IsMovement(node->op) || node->op == Op::kReduce ||
                       (IsAlu(node->op) && node->op != Op::kFDiv);
      if (!may) continue;
      const auto end = node->src.begin() + node->own_sources();  // then come dimensions
      if (!std::all_of(node->src.begin(), end,
                       [&](const UOp* s) { return known.contains(s) || joins.contains(s); }))
        continue;
      joins.insert(node);
      scores.joins.insert(node);
    }
  }

  void Visit(const UOp* node) {
    int mine = -1;
    bool wide = false;
    for (const UOp* s : node->src) {
      const auto found = family_of_.find(s);
      if (found == family_of_.end()) continue;
      mine = mine < 0 ? Root(found->second) : Unite(mine, Root(found->second));
      wide = wide || wide_.contains(s);
    }
    if (mine < 0) {
      const bool in_parts = of_parts_.contains(node);
      if (!IsLargeProduct(node, has_blocks_, in_parts)) return;
      mine = static_cast<int>(families_.size());
      families_.emplace_back();
      families_.back().in_parts = in_parts;
      families_.back().elements = Elements(node);
      families_.back().of_bf16 = HasFactorOf(node, IsBf16);
      families_.back().of_narrow = HasFactorOf(node, IsNarrow);
      families_.back().small = IsOfSmallFloats(node);
      families_.back().of_f32 = IsOfF32(node);
      families_.back().width = PaddedSize(node->src[0]->shape[ReduceOf(node).axes()[0]]);
      parent_.push_back(mine);
    } else if (node->op == Op::kReduce) {
      Reduced(node, families_[mine], wide);
      return;
    } else if (node->op == Op::kExpand) {
      wide = true;  // repeated for each column of the other matrix
    } else if (node->op != Op::kReshape && node->op != Op::kPermute && node->op != Op::kCast &&
               !IsAlu(node->op) && !(node->op == Op::kPad && of_parts_.contains(node))) {
      families_[mine].stored = true;
      return;
    }
    if (node->op == Op::kWhere && IsOfPositions(node->src[0])) families_[mine].masked = true;
    family_of_[node] = mine;
    if (wide) wide_.insert(node);
  }

  bool IsCheaper(const Family& family) const {
    if (has_blocks_)
      return ((family.small && family.width <= kWidthOnBlocks) ||
              (family.of_f32 && family.width <= kWidthOfF32OnBlocks)) &&
             family.row >= kRowOnBlocks && (family.products > 1 || family.ends == 1);
    const bool has_logits = family.products == 1 && family.ends > 1;
    if (family.of_narrow && !has_logits && family.elements >= kScoresKept && family.row >= kRowKept)
      return true;
    if (family.of_bf16 && has_matrix_unit_) return false;  // panels do without it
    if (family.of_narrow && !family.masked) return false;
    if (has_logits) return family.elements >= kLogits && family.width <= kWidthOfLogits;
    if (family.products == 1)
      return family.row >= kRowOfResults && (family.masked || family.width <= kWidthOfResults);
    if (family.masked)
      return family.row >= (family.of_narrow ? kRowOfMaskedNarrowGradients : kRowOfMaskedGradients);
    return family.row >= std::max(kRowOfGradients, kWidthsOfGradients * family.width);
  }

  // A family ends here.
  static void Reduced(const UOp* node, Family& family, bool wide) {
    const Op op = ReduceOf(node).op();
    const auto axes = ReduceOf(node).axes();
    for (const int64_t axis : axes)
      family.row = std::min(family.row, PaddedSize(node->src[0]->shape[axis]));
    if (axes.size() != 1) {
      family.stored = true;
    } else if (!wide) {
      family.has_max |= op == Op::kMax;
    } else if (op == Op::kAdd && node->src[0]->op == Op::kMul) {
      ++family.ends;
      family.small = family.small && IsOfSmallFloats(node);
      family.of_f32 = family.of_f32 && IsOfF32(node);
    } else {
      family.stored = true;
    }
  }

  int Root(int family) const {
    while (parent_[family] != family) family = parent_[family];
    return family;
  }
  const Family& FamilyOf(int family) const { return families_[Root(family)]; }
  Family& FamilyOf(int family) { return families_[Root(family)]; }

  int Unite(int a, int b) {
    if (a == b) return a;
    families_[a].has_max |= families_[b].has_max;
    families_[a].ends += families_[b].ends;
    families_[a].stored |= families_[b].stored;
    families_[a].products += families_[b].products;
    families_[a].masked |= families_[b].masked;
    families_[a].in_parts |= families_[b].in_parts;
    families_[a].of_bf16 |= families_[b].of_bf16;
    families_[a].of_narrow |= families_[b].of_narrow;
    families_[a].small = families_[a].small && families_[b].small;
    families_[a].of_f32 = families_[a].of_f32 && families_[b].of_f32;
    families_[a].elements = std::max(families_[a].elements, families_[b].elements);
    families_[a].row = std::min(families_[a].row, families_[b].row);
    families_[a].width = std::max(families_[a].width, families_[b].width);
    return parent_[b] = a;
  }

  const bool by_cost_, has_matrix_unit_, has_blocks_;
  // Scores whose keys are divided among blocks, and all nodes that these scores depend on.
  absl::flat_hash_set<const UOp*> of_parts_;
  std::vector<Family> families_;
  std::vector<int> parent_;  // of a family that was united with another; else itself
  absl::flat_hash_map<const UOp*, int> family_of_;
  absl::flat_hash_set<const UOp*> wide_;  // more elements than the scores
};

}  // namespace

absl::flat_hash_set<const UOp*> Scores::All() const {
  absl::flat_hash_set<const UOp*> all = joins;
  std::vector<const UOp*> open;
  for (const auto& [node, attention] : attention_of)
    if (all.insert(node).second) open.push_back(node);
  while (!open.empty()) {
    const UOp* const node = open.back();
    open.pop_back();
    for (const UOp* s : node->src)
      if ((IsMovement(s->op) || IsAlu(s->op) || s->op == Op::kCast) &&
          Elements(s) >= Elements(node) && !stored.contains(s) && all.insert(s).second)
        open.push_back(s);
  }
  return all;
}

absl::flat_hash_set<int> Scores::Attentions() const {
  absl::flat_hash_set<int> all;
  for (const auto& [node, attention] : attention_of) all.insert(attention);
  return all;
}

void Scores::Store(const absl::flat_hash_set<int>& attentions) {
  absl::erase_if(attention_of, [&](const auto& entry) {
    if (!attentions.contains(entry.second)) return false;
    stored.insert(entry.first);
    return true;
  });
}

Scores FindScores(const UOp* sink, ScorePolicy policy, const Target& target,
                  const absl::flat_hash_set<const UOp*>& scores_of_parts) {
  // Blocks of threads have no panels; those of one vendor do without.
  const bool stores =
      policy == ScorePolicy::kKeep || (policy == ScorePolicy::kByCost && target.block_threads > 1 &&
                                       target.kind != TargetKind::kCuda);
  if (stores) return {};
  return Finder(policy, target, scores_of_parts).Run(sink);
}

}  // namespace outboard::schedule
