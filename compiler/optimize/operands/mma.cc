#include "compiler/optimize/operands/mma.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "compiler/ir/accessors.h"
#include "compiler/kernel/affine.h"
#include "compiler/kernel/row_sums.h"
#include "compiler/matrix_unit.h"
#include "compiler/rewrite/conjuncts.h"

namespace outboard::codegen {
namespace {

constexpr int64_t kCopyBytesMax = 16;
constexpr size_t kAddendsMax = 8;  // each has loops of its own

bool In(RangeSet set, int range) { return set >> range & 1; }

// The small float that `node` widens to f32; `node` itself for anything else.
const UOp* Widened(const UOp* node) {
  if (node->op != Op::kCast || node->dtype != DType::kF32) return node;
  switch (node->src[0]->dtype) {
    case DType::kBF16:
    case DType::kF16:
    case DType::kF8E4M3:
    case DType::kF8E5M2: return node->src[0];
    default: return node;
  }
}

// What a sum in narrow floats or f32 adds, without the rounding of each term, and without what sets
// terms to 0: `gates` becomes the conditions for their being a product.
const UOp* ProductIn(const UOp* term, std::vector<const UOp*>& gates) {
  for (;;) {
    // Only these roundings may be left out (docs/semantics.md); to 8 bits a number is also bounded.
    const bool is_rounding = term->dtype == DType::kF32 || IsFloatOf16(term->dtype);
    if (term->op == Op::kCast && is_rounding && IsFloat(term->src[0]->dtype)) {
      term = term->src[0];
    } else if (term->op == Op::kWhere && IsZero(term->src[2])) {
      gates.push_back(term->src[0]);
      term = term->src[1];
    } else {
      return term;
    }
  }
}

// Whether `value` is 0 where one of `gates` is false.
bool IsZeroOutside(const UOp* value, const std::vector<const UOp*>& gates) {
  absl::flat_hash_set<const UOp*> has;
  if (value->op == Op::kLoad && value->src.size() == 3 && IsZero(value->src[2])) {
    const std::vector<const UOp*> conjuncts = ConjunctsOf(value->src[1]);
    has.insert(conjuncts.begin(), conjuncts.end());
  }
  return std::ranges::all_of(gates, [&](const UOp* gate) {
    return std::ranges::all_of(ConjunctsOf(gate), [&](const UOp* w) { return has.contains(w); });
  });
}

// Whether `term` is the range's quotient by a constant, or the remainder of it.
bool Divides(const UOp* term, Op op, const UOp* range) {
  return term->op == op && term->src[0] == range && term->src[1]->is_const();
}

class Finder {
 public:
  Finder(const LoopNest& kernel, MixedBytes mixed) : kernel_(kernel), mixed_(mixed) {}

  bool has_two_types() const { return has_two_types_; }

  absl::StatusOr<MmaProduct> Run() {
    const auto illegal = [](const char* why) { return absl::InvalidArgumentError(why); };
    if (kernel_.empty) return illegal("nothing to compute");
    if (kernel_.groups.empty()) return illegal("no reduction");
    if (kernel_.parallel_count != kernel_.output_count) return illegal("a range is a sequence");
    // Columns are what lies side by side in the first result.
    inner_ = ConsecutiveInStore();
    if (const char* const why = FindTotal(); why != nullptr) return illegal(why);
    if (const char* const why = AddAddends(); why != nullptr) return illegal(why);
    if (const char* const why = Divide(); why != nullptr) return illegal(why);
    if (product_.dtype == DType::kF32)
      product_.parts = kernel_.tf32 ? MmaParts::kRounded : MmaParts::kThree;
    for (const MmaAddend& addend : product_.addends) {
      if (addend.steps == 0) return illegal("no steps");
      product_.steps += addend.steps;
    }
    Arrange();
    if (const char* const why = AddsRows(); why != nullptr) return illegal(why);
    return std::move(product_);
  }

 private:
  int64_t Extent(int range) const { return kernel_.ranges[range].extent; }
  int ConsecutiveInStore() {
    const Affine& index = forms_.Of(kernel_.stores[0]->src[0]->src[1]);
    for (int r = 0; r < kernel_.output_count; ++r)
      if (index.CoefficientOf(kernel_.ranges[r].node) == 1) return r;
    return -1;
  }

  // Sets the sum of all reductions: one of them, or the ADDs that do nothing else than add them.
  // Returns why there is none; null if there is.
  const char* FindTotal() {
    size_t count = 0;
    absl::flat_hash_map<const UOp*, size_t> added;  // a sum of so many reductions
    for (const ReduceGroup& group : kernel_.groups) {
      if (kernel_.IsNested(group)) return "a reduction inside of another one";
      for (const UOp* node : group.nodes) {
        if (ReduceOf(node).op() != Op::kAdd) return "not a sum";
        if (node->dtype == DType::kF64) return "a sum in f64";
        added[node] = 1;
        product_.sum = node;
        ++count;
      }
    }
    if (count == 1) return nullptr;
    for (const auto& [node, number] : added)
      if (node->dtype != DType::kF32) return "several sums, rounded each";
    absl::flat_hash_map<const UOp*, size_t> users;
    for (const UOp* node : kernel_.nodes) {
      for (const UOp* source : node->src)
        if (added.contains(source)) ++users[source];
      if (added.at(product_.sum) == count) continue;  // what is added then is no part of it
      if (node->op != Op::kAdd || node->dtype != DType::kF32) continue;
      const auto first = added.find(node->src[0]), second = added.find(node->src[1]);
      if (first == added.end() || second == added.end()) continue;
      const size_t both = first->second + second->second;
      added[node] = both;
      product_.sum = node;  // sources come first: the last one adds most
    }
    if (added.at(product_.sum) != count) return "several reductions that are not added";
    // Each of those below has one user, which is in the sum.
    for (const auto& [node, number] : added)
      if (node != product_.sum && users[node] != 1) return "a part of the sum is used by itself";
    return nullptr;
  }

  // Adds the addends of all reductions of the sum, first to last.
  const char* AddAddends() {
    std::vector<const UOp*> open = {product_.sum};
    while (!open.empty()) {
      const UOp* const node = open.back();
      open.pop_back();
      if (node->op != Op::kReduceLoop) {
        open.push_back(node->src[1]);
        open.push_back(node->src[0]);
        continue;
      }
      for (const ReduceGroup& group : kernel_.groups)
        if (std::find(group.nodes.begin(), group.nodes.end(), node) != group.nodes.end())
          if (const char* const why = AddTerms(node->src[0], {}, group.ranges, 0); why != nullptr)
            return why;
    }
    return nullptr;
  }

  // The same of one reduction: of a term that may be an ADD of products, `depth` ADDs deep.
  const char* AddTerms(const UOp* term, std::vector<const UOp*> gates,
                       const std::vector<int>& reduced, size_t depth) {
    if (product_.addends.size() == kAddendsMax || depth == kAddendsMax)
      return "too many products are added";
    const UOp* inside = term;
    while (inside->op == Op::kWhere && IsZero(inside->src[2])) inside = inside->src[1];
    if (inside->op == Op::kAdd && inside->dtype == DType::kF32) {
      for (; term != inside; term = term->src[1]) gates.push_back(term->src[0]);
      for (const UOp* part : inside->src)
        if (const char* const why = AddTerms(part, gates, reduced, depth + 1); why != nullptr)
          return why;
      return nullptr;
    }
    const std::vector<const UOp*> outer = gates;
    const UOp* const product = ProductIn(term, gates);
    if (product->op != Op::kMul || product->dtype != DType::kF32)
      return "not a sum of products in f32";
    MmaAddend addend{.term = term, .gates = outer, .reduced = reduced};
    addend.rows.value = Widened(product->src[0]);
    addend.columns.value = Widened(product->src[1]);
    const DType a = addend.rows.value->dtype, b = addend.columns.value->dtype;
    has_two_types_ |= a != b && AreMultiplied(a, b);
    if (!AreMultiplied(a, b) || (a != b && mixed_ == MixedBytes::kWidened)) {
      addend.rows.value = product->src[0];
      addend.columns.value = product->src[1];
    }
    if (!IsZeroOutside(addend.rows.value, gates) && !IsZeroOutside(addend.columns.value, gates))
      return "terms are 0 where neither operand is";
    if (inner_ >= 0 && In(kernel_.DepsOf(addend.rows.value), inner_) &&
        !In(kernel_.DepsOf(addend.columns.value), inner_))
      std::swap(addend.rows, addend.columns);
    for (const int r : reduced) addend.steps *= Extent(r);
    product_.addends.push_back(std::move(addend));
    return nullptr;
  }

  // Why it cannot be done; null if it is.
  const char* Divide() {
    const auto outputs_of = [&](const MmaFactor& operand) {
      return kernel_.DepsOf(operand.value) & kernel_.OutputSet();
    };
    const RangeSet rows = outputs_of(product_.addends[0].rows),
                   columns = outputs_of(product_.addends[0].columns);
    for (MmaAddend& addend : product_.addends) {
      if (outputs_of(addend.rows) != rows) std::swap(addend.rows, addend.columns);
      if (outputs_of(addend.rows) != rows || outputs_of(addend.columns) != columns)
        return "products of other rows or columns are added";
      const DType of_rows = addend.rows.value->dtype, of_columns = addend.columns.value->dtype;
      if (&addend == &product_.addends[0]) {
        product_.dtype = of_rows;
        product_.columns_dtype = of_columns;
      } else if (of_rows != product_.dtype || of_columns != product_.columns_dtype) {
        return "products of different types are added";
      }
    }
    for (int r = 0; r < kernel_.output_count; ++r) {
      if (In(rows, r) && In(columns, r)) {
        product_.batch.push_back(r);
        product_.batches *= Extent(r);
      } else if (In(rows, r) || In(columns, r)) {
        MmaSide& side = In(rows, r) ? product_.rows : product_.columns;
        side.ranges.push_back(r);
        side.count *= Extent(r);
      } else {
        return "an output range moves no operand";
      }
    }
    if (product_.rows.ranges.empty()) return "rows must move one operand alone";
    if (product_.columns.ranges.empty()) return "columns must move the other operand alone";
    return nullptr;
  }

  // Why sums beside the product are not of its rows, a fragment's at a time; null if they are. Of
  // the ranges that vary fastest alone, where these are whole blocks: no fragment then has rows of
  // two blocks.
  const char* AddsRows() {
    std::vector<const UOp*> outputs, rows;
    for (int r = 0; r < kernel_.output_count; ++r) outputs.push_back(kernel_.ranges[r].node);
    for (const int r : product_.rows.ranges) rows.push_back(kernel_.ranges[r].node);
    for (const UOp* store : kernel_.stores) {
      if (!SumsPoints(store)) continue;
      const absl::StatusOr<std::vector<const UOp*>> summed = SummedRows(store, outputs);
      if (!summed.ok()) return "a sum beside the product has no blocks of rows";
      int64_t inner = 1;
      for (const UOp* range : *summed) inner *= RangeOf(range).extent();
      if (summed->size() > rows.size() ||
          !std::equal(summed->rbegin(), summed->rend(), rows.rbegin()))
        return "a sum beside the product is not of its rows";
      if (summed->size() < rows.size() && inner % kSumRows != 0)
        return "a block of a sum beside the product has other rows than a fragment";
      product_.adds_rows = true;
    }
    return nullptr;
  }

  // How many elements lie side by side along this range, from each multiple on; 0 if it does not
  // move by one element at all.
  int64_t RunAlong(const MmaFactor& operand, int range) {
    const UOp* const load = operand.value;
    const Affine& index = forms_.Of(load->src[0]->src[1]);
    const UOp* const node = kernel_.ranges[range].node;
    const PeriodicMoves periodic = PeriodicMovesOf(index, node);
    const int64_t period = periodic.divisor;
    if ((period == 0 ? index.CoefficientOf(node) : periodic.of_remainders) != 1) return 0;
    if (load->src.size() == 3 && In(kernel_.DepsOf(load->src[1]), range)) return 1;
    if (kernel_.ranges[range].end() != nullptr) return 1;
    // Within a period all else stays as it is.
    uint64_t all = index.constant | static_cast<uint64_t>(period == 0 ? Extent(range) : period);
    for (const auto& [term, coefficient] : index.terms) {
      if (period == 0 ? term == node
                      : Divides(term, Op::kMod, node) && term->src[1]->int_value() == period)
        continue;
      const bool stays = period != 0 && Divides(term, Op::kIDiv, node) &&
                         term->src[1]->int_value() % period == 0;
      if (In(kernel_.DepsOf(term), range) && !stays) return 1;
      all |= coefficient;
    }
    int64_t run = kCopyBytesMax / ByteWidth(product_.dtype);
    while (all % static_cast<uint64_t>(run) != 0) run /= 2;
    return run;
  }

  struct Choice {
    int64_t run = 0;
    int range = -1;
  };
  Choice BestOf(const MmaFactor& operand, const std::vector<int>& ranges) {
    Choice best;
    for (const int r : ranges)
      if (const int64_t run = RunAlong(operand, r); run > best.run) best = {run, r};
    return best;
  }

  static void PutLast(std::vector<int>& ranges, int range) {
    const auto at = std::find(ranges.begin(), ranges.end(), range);
    if (at != ranges.end()) std::rotate(at, at + 1, ranges.end());
  }

  // The steps that share a block of what `value` loads: the places of narrow numbers have a
  // quotient by so many. 1: there is no such load.
  int64_t BlockOf(const UOp* value, const std::vector<int>& reduced) {
    int64_t block = 1;
    for (const UOp* load : PostOrder(value)) {
      if (load->op != Op::kLoad || ByteWidth(load->dtype) >= ByteWidth(product_.dtype)) continue;
      for (const auto& [term, coefficient] : forms_.Of(load->src[0]->src[1]).terms)
        for (const int r : reduced)
          if (Divides(term, Op::kIDiv, kernel_.ranges[r].node))
            block = std::max(block, term->src[1]->int_value());
    }
    return block;
  }

  // Which ranges vary fastest, so that as much as possible is copied side by side. Of rows and of
  // columns the first addend that lies across its steps decides.
  void Arrange() {
    PutLast(product_.columns.ranges, inner_);
    bool decided_rows = false, decided_columns = false;
    for (MmaAddend& addend : product_.addends) {
      int fastest_step = -1;
      int64_t longest = 0;
      for (MmaFactor* operand : {&addend.rows, &addend.columns}) {
        const bool is_rows = operand == &addend.rows;
        MmaSide& side = is_rows ? product_.rows : product_.columns;
        bool& decided = is_rows ? decided_rows : decided_columns;
        operand->copied = operand->value->op == Op::kLoad &&
                          (operand->value->src.size() == 1 || IsZero(operand->value->src[2]));
        if (!operand->copied) {
          product_.block_steps =
              std::max(product_.block_steps, BlockOf(operand->value, addend.reduced));
          continue;
        }
        const Choice steps = BestOf(*operand, addend.reduced), own = BestOf(*operand, side.ranges);
        // Nothing turns matrices of single bytes.
        operand->across = own.run > steps.run && ByteWidth(product_.dtype) > 1;
        if (operand->across && !decided) {
          PutLast(side.ranges, own.range);
          decided = true;
        } else if (!operand->across && steps.run > longest) {
          longest = steps.run;
          fastest_step = steps.range;
        }
      }
      PutLast(addend.reduced, fastest_step);
    }
    for (MmaAddend& addend : product_.addends)
      for (MmaFactor* operand : {&addend.rows, &addend.columns}) {
        if (!operand->copied) continue;
        const MmaSide& side = operand == &addend.rows ? product_.rows : product_.columns;
        const int fastest = operand->across ? side.ranges.back() : addend.reduced.back();
        operand->run = std::max<int64_t>(1, RunAlong(*operand, fastest));
      }
  }

  const LoopNest& kernel_;
  AffineForms forms_;
  const MixedBytes mixed_;
  int inner_ = -1;
  bool has_two_types_ = false;  // a product of two 8-bit floats
  MmaProduct product_;
};

}  // namespace

PeriodicMoves PeriodicMovesOf(const Affine& index, const UOp* range) {
  PeriodicMoves moves;
  const auto find = [&](Op op, uint64_t& stride) {
    for (const auto& [term, coefficient] : index.terms)
      if (Divides(term, op, range) &&
          (moves.divisor == 0 || term->src[1]->int_value() == moves.divisor)) {
        moves.divisor = term->src[1]->int_value();
        stride = coefficient;
      }
  };
  find(Op::kMod, moves.of_remainders);
  if (moves.divisor != 0) find(Op::kIDiv, moves.of_quotients);
  if (moves.divisor <= 0 || RangeOf(range).extent() % moves.divisor != 0 ||
      index.CoefficientOf(range) != 0)
    return {};
  return moves;
}

absl::StatusOr<MmaProduct> FindMmaProduct(const LoopNest& kernel, MixedBytes mixed) {
  Finder finder(kernel, mixed);
  absl::StatusOr<MmaProduct> product = finder.Run();
  if (product.ok() || mixed == MixedBytes::kWidened || !finder.has_two_types()) return product;
  return Finder(kernel, MixedBytes::kWidened).Run();
}

}  // namespace outboard::codegen
