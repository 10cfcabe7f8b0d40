#include "compiler/optimize/operands/mma.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "compiler/ir/accessors.h"
#include "compiler/kernel/affine.h"
#include "compiler/kernel/row_sums.h"

namespace outboard::codegen {
namespace {

constexpr int64_t kCopyBytesMax = 16;

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
    const bool is_rounding = term->dtype == DType::kF32 || term->dtype == DType::kF16 ||
                             term->dtype == DType::kBF16;
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

// Adds the conditions of which `condition` is the conjunction.
void AddConjuncts(const UOp* condition, absl::flat_hash_set<const UOp*>& all) {
  std::vector<const UOp*> open = {condition};
  while (!open.empty()) {
    const UOp* const next = open.back();
    open.pop_back();
    if (next->op == Op::kAnd) {
      open.insert(open.end(), next->src.begin(), next->src.end());
    } else {
      all.insert(next);
    }
  }
}

// Whether `value` is 0 where one of `gates` is false.
bool IsZeroOutside(const UOp* value, const std::vector<const UOp*>& gates) {
  absl::flat_hash_set<const UOp*> wanted, has;
  for (const UOp* gate : gates) AddConjuncts(gate, wanted);
  if (value->op == Op::kLoad && value->src.size() == 3 && IsZero(value->src[2]))
    AddConjuncts(value->src[1], has);
  return std::all_of(wanted.begin(), wanted.end(), [&](const UOp* w) { return has.contains(w); });
}

class Finder {
 public:
  explicit Finder(const LoopNest& kernel) : kernel_(kernel) {}

  absl::StatusOr<MmaProduct> Run() {
    const auto illegal = [](const char* why) { return absl::InvalidArgumentError(why); };
    if (kernel_.empty) return illegal("nothing to compute");
    if (kernel_.groups.size() != 1 || kernel_.groups[0].nodes.size() != 1)
      return illegal("not the kernel's only reduction");
    if (kernel_.parallel_count != kernel_.output_count) return illegal("a range is a sequence");
    const ReduceGroup& group = kernel_.groups[0];
    product_.sum = group.nodes[0];
    if (ReduceOf(product_.sum).op() != Op::kAdd) return illegal("not a sum");
    if (product_.sum->dtype == DType::kF64) return illegal("a sum in f64");
    std::vector<const UOp*> gates;
    const UOp* const term = ProductIn(product_.sum->src[0], gates);
    if (term->op != Op::kMul || term->dtype != DType::kF32)
      return illegal("not a sum of products in f32");
    product_.rows.value = Widened(term->src[0]);
    product_.columns.value = Widened(term->src[1]);
    if (product_.rows.value->dtype != product_.columns.value->dtype) {
      product_.rows.value = term->src[0];
      product_.columns.value = term->src[1];
    }
    if (!IsZeroOutside(product_.rows.value, gates) && !IsZeroOutside(product_.columns.value, gates))
      return illegal("terms are 0 where neither operand is");
    product_.dtype = product_.rows.value->dtype;
    if (product_.dtype == DType::kF32)
      product_.parts = kernel_.tf32 ? MmaParts::kRounded : MmaParts::kThree;
    // Columns are what lies side by side in the first result.
    const int inner = ConsecutiveInStore();
    if (inner >= 0 && In(kernel_.DepsOf(product_.rows.value), inner) &&
        !In(kernel_.DepsOf(product_.columns.value), inner))
      std::swap(product_.rows, product_.columns);
    if (const char* const why = Divide(); why != nullptr) return illegal(why);
    product_.reduced = group.ranges;
    for (const int r : product_.reduced) product_.steps *= kernel_.ranges[r].extent;
    if (product_.steps == 0) return illegal("no steps");
    Arrange(inner);
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

  // Why it cannot be done; null if it is.
  const char* Divide() {
    const RangeSet rows = kernel_.DepsOf(product_.rows.value),
                   columns = kernel_.DepsOf(product_.columns.value);
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

  // Why sums beside the product are not of its rows, a fragment's at a time; null if they are.
  const char* AddsRows() {
    std::vector<const UOp*> outputs, rows;
    for (int r = 0; r < kernel_.output_count; ++r) outputs.push_back(kernel_.ranges[r].node);
    for (const int r : product_.rows.ranges) rows.push_back(kernel_.ranges[r].node);
    for (const UOp* store : kernel_.stores) {
      if (!SumsPoints(store)) continue;
      const absl::StatusOr<std::vector<const UOp*>> summed = SummedRows(store, outputs);
      if (!summed.ok()) return "a sum beside the product has no blocks of rows";
      if (*summed != rows) return "a sum beside the product is not of its rows";
      product_.adds_rows = true;
    }
    return nullptr;
  }

  // How many elements lie side by side along this range, from each multiple on; 0 if it does not
  // move by one element at all.
  int64_t RunAlong(const MmaSide& side, int range) {
    const UOp* const load = side.value;
    const Affine& index = forms_.Of(load->src[0]->src[1]);
    const UOp* const node = kernel_.ranges[range].node;
    if (index.CoefficientOf(node) != 1) return 0;
    if (load->src.size() == 3 && In(kernel_.DepsOf(load->src[1]), range)) return 1;
    if (kernel_.ranges[range].end() != nullptr) return 1;
    uint64_t all = index.constant | static_cast<uint64_t>(Extent(range));
    for (const auto& [term, coefficient] : index.terms) {
      if (term == node) continue;
      if (In(kernel_.DepsOf(term), range)) return 1;
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
  Choice BestOf(const MmaSide& side, const std::vector<int>& ranges) {
    Choice best;
    for (const int r : ranges)
      if (const int64_t run = RunAlong(side, r); run > best.run) best = {run, r};
    return best;
  }

  static void PutLast(std::vector<int>& ranges, int range) {
    const auto at = std::find(ranges.begin(), ranges.end(), range);
    if (at != ranges.end()) std::rotate(at, at + 1, ranges.end());
  }

  // Which ranges vary fastest, so that as much as possible is copied side by side.
  void Arrange(int inner) {
    PutLast(product_.columns.ranges, inner);
    int fastest_step = -1;
    int64_t longest = 0;
    for (MmaSide* side : {&product_.rows, &product_.columns}) {
      side->copied = side->value->op == Op::kLoad &&
                     (side->value->src.size() == 1 || IsZero(side->value->src[2]));
      if (!side->copied) continue;
      const Choice steps = BestOf(*side, product_.reduced), own = BestOf(*side, side->ranges);
      // Nothing turns matrices of single bytes.
      side->across = own.run > steps.run && ByteWidth(product_.dtype) > 1;
      if (side->across) {
        PutLast(side->ranges, own.range);
        side->run = own.run;
      } else if (steps.run > longest) {
        longest = steps.run;
        fastest_step = steps.range;
      }
    }
    PutLast(product_.reduced, fastest_step);
    for (MmaSide* side : {&product_.rows, &product_.columns})
      if (side->copied && !side->across)
        side->run = std::max<int64_t>(1, RunAlong(*side, product_.reduced.back()));
  }

  const LoopNest& kernel_;
  AffineForms forms_;
  MmaProduct product_;
};

}  // namespace

absl::StatusOr<MmaProduct> FindMmaProduct(const LoopNest& kernel) { return Finder(kernel).Run(); }

}  // namespace outboard::codegen
