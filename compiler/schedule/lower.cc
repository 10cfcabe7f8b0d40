#include "compiler/schedule/lower.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/ir/accessors.h"
#include "compiler/ir/build.h"
#include "compiler/ir/dims.h"
#include "compiler/ir/expr.h"
#include "compiler/ir/limits.h"
#include "compiler/rewrite/recorder.h"
#include "compiler/rewrite/simplify.h"
#include "compiler/schedule/gather/gather.h"
#include "compiler/schedule/guard.h"
#include "compiler/schedule/padded_dims.h"

namespace outboard::schedule {
namespace {

using Indices = std::vector<const UOp*>;

// A node at an index, read only where `gate` holds (nullptr: always).
struct Site {
  const UOp* node;
  Indices index;
  const UOp* gate;

  friend bool operator==(const Site&, const Site&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const Site& site) {
    return H::combine(std::move(h), site.node, site.index, site.gate);
  }
};

// The product of some dimensions: a number, and the expressions beside it.
struct DimProduct {
  int64_t number = 1;
  std::vector<const UOp*> expressions;  // sorted by address, for comparing only

  void Multiply(const Dim& dim) {
    const DimFactors factors = FactorsOf(dim);
    number *= factors.number;
    for (const UOp* factor : factors.expressions)
      expressions.insert(std::upper_bound(expressions.begin(), expressions.end(), factor), factor);
  }
  // Whether it lacks a factor that `other` has; one that is a number if the expressions are equal.
  bool Lacks(const DimProduct& other) const {
    if (expressions == other.expressions) return number < other.number;
    return !std::includes(expressions.begin(), expressions.end(), other.expressions.begin(),
                          other.expressions.end());
  }
  friend bool operator==(const DimProduct&, const DimProduct&) = default;
};

// The index of a RESHAPE's source. Dimensions are matched in the smallest groups of equal size, so
// that splitting or joining some of them leaves the others without arithmetic. Requires no
// dimension of 0.
Indices ReshapeIndex(Graph& g, const Indices& index, ShapeView from, ShapeView to) {
  Indices result;
  size_t a = 0, b = 0;  // next dimension of `from` (the result's) and of `to` (the index's)
  while (a < from.size() || b < to.size()) {
    const size_t a0 = a, b0 = b;
    DimProduct left, right;
    if (a < from.size()) left.Multiply(from[a++]);
    if (b < to.size()) right.Multiply(to[b++]);
    while (left != right && (a < from.size() || b < to.size())) {
      if (a < from.size() && (b == to.size() || left.Lacks(right)))
        left.Multiply(from[a++]);
      else
        right.Multiply(to[b++]);
    }
    const UOp* flat =
        NumberOf(g, Indices(index.begin() + b0, index.begin() + b), to.subspan(b0, b - b0));
    Indices group(a - a0);
    for (size_t i = a; i-- > a0;) {
      const UOp* const extent = ValueOf(g, from[i]);
      if (i == a0) {
        group[0] = flat;
      } else {
        const Expr whole(g, flat);
        group[i - a0] = Simplify(g, (whole % whole.of(extent)).node());
        flat = Simplify(g, (whole / whole.of(extent)).node());
      }
    }
    result.insert(result.end(), group.begin(), group.end());
  }
  return result;
}

// More than lowering one node of any shape makes.
constexpr int64_t kNodesOfAStep = 4096;

class Lowerer {
 public:
  // With `stored` nullptr every REDUCE that stays a loop is opaque, and every CONTIGUOUS.
  Lowerer(Graph& graph, const UOp* top, const absl::flat_hash_set<const UOp*>* stored,
          const RowPitches& pitches)
      : graph_(graph), top_(top), stored_(stored), pitches_(pitches) {}

  absl::StatusOr<const UOp*> Lower(const UOp* node, Indices index) {
    const Site root{node, std::move(index), nullptr};
    std::vector<Site> stack = {root};
    while (!stack.empty()) {
      const Site site = stack.back();
      if (values_.contains(site)) {
        stack.pop_back();
        continue;
      }
      const std::vector<Site> needs = Needs(site);
      const size_t before = stack.size();
      for (size_t i = needs.size(); i-- > 0;)
        if (!values_.contains(needs[i])) stack.push_back(needs[i]);
      if (stack.size() != before) continue;
      values_.emplace(site, Combine(site, needs));
      stack.pop_back();
      if (graph_.node_count() + kNodesOfAStep > limits::kGraphNodesMax)
        return absl::ResourceExhaustedError(
            absl::StrCat("the graph and its kernels need over ", limits::kGraphNodesMax, " nodes"));
    }
    return values_.at(root);
  }

  void set_next_range(int64_t id) { next_range_ = id; }
  std::vector<const UOp*> buffers;  // by GLOBAL slot

 private:
  enum class Kind { kZero, kLoad, kOpaque, kConst, kIota, kMovement, kReduce, kValue };

  Kind KindOf(const Site& site) const {
    const UOp& node = *site.node;
    if (PaddedSize(node.shape) == 0) return Kind::kZero;
    if (node.op == Op::kParam) return Kind::kLoad;
    if (node.op == Op::kConst) return Kind::kConst;
    // Also where it is a result, and so in memory: a one-hot sum must see the position.
    if (node.op == Op::kIota) return Kind::kIota;
    if (stored_ != nullptr && stored_->contains(&node) && &node != top_) return Kind::kLoad;
    if (IsMovement(node.op)) return Kind::kMovement;
    if (node.op == Op::kContiguous && stored_ == nullptr && &node != top_) return Kind::kOpaque;
    if (node.op == Op::kReduce)
      return stored_ == nullptr && &node != top_ ? Kind::kOpaque : Kind::kReduce;
    return Kind::kValue;
  }

  const UOp* Negated(const Dim& dim) {
    return Simplify(graph_, Mul(graph_, ValueOf(graph_, dim), ConstIndex(graph_, -1)));
  }

  // Where a PAD's source is, for an index into the padded; nullptr for everywhere.
  const UOp* PadGuard(const Site& site, Indices* inner) {
    const UOp& node = *site.node;
    const UOp* guard = nullptr;
    for (int i = 0; i < node.rank(); ++i) {
      const UOp* const place =
          Simplify(graph_, Add(graph_, site.index[i], Negated(PadOf(&node).low(i))));
      guard = AndGuards(graph_, guard, InRange(graph_, place, node.src[0]->shape[i]));
      if (inner != nullptr) inner->push_back(place);
    }
    return guard;
  }

  Site MovementSource(const Site& site) {
    const UOp& node = *site.node;
    const UOp& x = *node.src[0];
    Site source{&x, {}, site.gate};
    switch (node.op) {
      case Op::kReshape:
        source.index = ReshapeIndex(graph_, site.index, x.shape, node.shape);
        break;
      case Op::kPermute:
        source.index.resize(x.rank());
        for (int i = 0; i < node.rank(); ++i)
          source.index[PermuteOf(&node).axis(i)] = site.index[i];
        break;
      case Op::kExpand:
        for (int i = 0; i < x.rank(); ++i)
          source.index.push_back(x.shape[i] == Dim(1) ? ConstIndex(graph_, 0) : site.index[i]);
        break;
      case Op::kShrink:
        for (int i = 0; i < x.rank(); ++i)
          source.index.push_back(Simplify(
              graph_, Add(graph_, site.index[i], ValueOf(graph_, ShrinkOf(&node).begin(i)))));
        break;
      case Op::kFlip:
        source.index = site.index;
        for (const int64_t axis : FlipOf(&node).axes()) {
          // One element, or none: there is no loop that would end before it.
          if (PaddedSize(x.shape[axis]) == 1) continue;
          const UOp* const negated = Mul(graph_, site.index[axis], ConstIndex(graph_, -1));
          const UOp* const last =
              Add(graph_, ValueOf(graph_, x.shape[axis]), ConstIndex(graph_, -1));
          source.index[axis] = Simplify(graph_, Add(graph_, negated, last));
        }
        break;
      default: {  // PAD
        const UOp* const guard = PadGuard(site, &source.index);
        source.gate = AndGuards(graph_, site.gate, guard);
      }
    }
    return source;
  }

  Site ReduceSource(const Site& site) {
    const UOp& node = *site.node;
    Site source{node.src[0], site.index, site.gate};
    std::vector<const UOp*>& ranges = ranges_[site];
    const bool fresh = ranges.empty();
    size_t next = 0;
    for (const int64_t axis : ReduceOf(&node).axes()) {
      const Dim& dim = node.src[0]->shape[axis];
      if (dim == Dim(1)) continue;
      if (fresh) ranges.push_back(RangeOver(graph_, next_range_++, dim, RangeKind::kReduce));
      source.index[axis] = ranges[next++];
    }
    return source;
  }

  std::vector<Site> Needs(const Site& site) {
    switch (KindOf(site)) {
      case Kind::kMovement:
        if (const auto found = needs_.find(site); found != needs_.end()) return {found->second};
        return {needs_.emplace(site, MovementSource(site)).first->second};
      case Kind::kReduce:
        if (PaddedSize(site.node->src[0]->shape) == 0) return {};
        return {ReduceSource(site)};
      case Kind::kValue: {
        std::vector<Site> needs;
        for (const UOp* s : site.node->src) needs.push_back({s, site.index, site.gate});
        return needs;
      }
      default: return {};
    }
  }

  const UOp* Load(const Site& site) {
    const auto [slot, inserted] = slots_.emplace(site.node, buffers.size());
    if (inserted) buffers.push_back(site.node);
    const UOp& node = *site.node;
    const UOp* const global = graph_.MakeChecked(
        Op::kGlobal, node.dtype, {},
        {static_cast<int64_t>(slot->second), ElementsInMemory(&node, pitches_)});
    const UOp* const place =
        graph_.MakeChecked(Op::kIndex, DType::kVoid,
                           {global, OffsetInMemory(graph_, site.index, &node, pitches_)});
    if (site.gate == nullptr) return graph_.MakeChecked(Op::kLoad, DType::kVoid, {place});
    return graph_.MakeChecked(Op::kLoad, DType::kVoid,
                              {place, site.gate, ConstOf(graph_, node.dtype, 0)});
  }

  const UOp* Combine(const Site& site, const std::vector<Site>& needs) {
    const UOp& node = *site.node;
    const UOp* const zero = node.dtype == DType::kVoid ? nullptr : ConstOf(graph_, node.dtype, 0);
    switch (KindOf(site)) {
      case Kind::kZero: return zero;
      case Kind::kLoad:
      case Kind::kOpaque: return Load(site);
      case Kind::kConst: return graph_.MakeChecked(Op::kConst, node.dtype, {}, node.arg);
      case Kind::kIota: return Cast(graph_, site.index[0], node.dtype);
      case Kind::kMovement: {
        const UOp* const value = values_.at(needs[0]);
        if (node.op != Op::kPad) return value;
        const UOp* const guard = PadGuard(site, nullptr);
        // A load gated by all of this gives the zero itself.
        const bool gated =
            value->op == Op::kLoad && value->src.size() == 3 && value->src[1] == needs[0].gate;
        return guard == nullptr || gated ? value : Where(graph_, guard, value, zero);
      }
      case Kind::kReduce: {
        const Op op = ReduceOf(&node).op();
        if (needs.empty()) return Identity(op, node.dtype);
        const UOp* value = values_.at(needs[0]);
        const std::vector<const UOp*>& ranges = ranges_.at(site);
        for (const UOp* range : ranges)  // what is nobody's takes no part
          if (!range->src.empty())
            value = Where(graph_, Alu(graph_, Op::kCmpLt, range, range->src[0]), value,
                          Identity(op, node.dtype));
        if (op == Op::kAdd) return MakeSum(graph_, value, ranges);
        if (ranges.empty()) return value;
        std::vector<const UOp*> src = {Simplify(graph_, value)};
        src.insert(src.end(), ranges.begin(), ranges.end());
        return graph_.MakeChecked(Op::kReduceLoop, DType::kVoid, src, {static_cast<int64_t>(op)});
      }
      case Kind::kValue: {
        if (node.op == Op::kContiguous) return values_.at(needs[0]);
        std::vector<const UOp*> src;
        for (const Site& need : needs) src.push_back(values_.at(need));
        return graph_.MakeChecked(node.op, node.dtype, src, node.arg);
      }
    }
    return nullptr;
  }

  const UOp* Identity(Op op, DType dtype) {
    if (op == Op::kAdd) return ConstOf(graph_, dtype, 0);
    if (op == Op::kMul) return ConstOf(graph_, dtype, 1);
    if (IsFloat(dtype)) return ConstFloat(graph_, dtype, -std::numeric_limits<double>::infinity());
    return ConstInt(graph_, dtype, IntMin(dtype));
  }

  Graph& graph_;
  // Each movement puts index arithmetic on top of that of those before.
  const RewritesTogether together_{graph_, SimplifyMatcher()};
  const UOp* top_;
  const absl::flat_hash_set<const UOp*>* stored_;
  const RowPitches& pitches_;
  int64_t next_range_ = 0;
  absl::flat_hash_map<Site, const UOp*> values_;
  absl::flat_hash_map<Site, Site> needs_;  // of movements, whose index arithmetic is worth keeping
  absl::flat_hash_map<Site, std::vector<const UOp*>> ranges_;
  absl::flat_hash_map<const UOp*, size_t> slots_;
};

}  // namespace

absl::StatusOr<LoweredKernel> LowerKernel(Graph& graph, const UOp* value,
                                          const absl::flat_hash_set<const UOp*>& stored,
                                          const RowPitches& pitches) {
  RecordedPass pass("lower", {value}, value);
  Indices index;
  int64_t next_range = 0;
  for (const Dim& dim : value->shape)
    index.push_back(dim == Dim(1) ? ConstIndex(graph, 0)
                                  : RangeOver(graph, next_range++, dim, RangeKind::kOutput));
  Lowerer lowerer(graph, value, &stored, pitches);
  lowerer.set_next_range(next_range);
  lowerer.buffers.push_back(value);
  OB_ASSIGN_OR_RETURN(const UOp* result, lowerer.Lower(value, index));
  const UOp* const global =
      graph.MakeChecked(Op::kGlobal, value->dtype, {}, {0, ElementsInMemory(value, pitches)});
  const UOp* const place = graph.MakeChecked(
      Op::kIndex, DType::kVoid, {global, OffsetInMemory(graph, index, value, pitches)});
  const UOp* const store = graph.MakeChecked(Op::kStore, DType::kVoid, {place, result});
  LoweredKernel kernel;
  kernel.ast = pass.Made(Simplify(graph, Sink(graph, {store})));
  kernel.buffers = std::move(lowerer.buffers);
  return kernel;
}

absl::StatusOr<const UOp*> LowerAt(Graph& graph, const UOp* node,
                                   const std::vector<const UOp*>& index,
                                   const absl::flat_hash_set<const UOp*>& stored,
                                   const RowPitches& pitches, std::vector<const UOp*>& buffers) {
  Lowerer lowerer(graph, nullptr, &stored, pitches);
  lowerer.set_next_range(kRangeIdInner);
  lowerer.buffers = std::move(buffers);
  OB_ASSIGN_OR_RETURN(const UOp* value, lowerer.Lower(node, index));
  buffers = std::move(lowerer.buffers);
  return value;
}

absl::StatusOr<const UOp*> IndexExpression(Graph& graph, const UOp* node,
                                           const std::vector<const UOp*>& index) {
  return Lowerer(graph, node, nullptr, {}).Lower(node, index);
}

const UOp* ProductSummed(const UOp* node) {
  if (node->op != Op::kReduceLoop || ReduceOf(node).op() != Op::kAdd) return nullptr;
  const UOp* term = node->src[0];
  while (term->op == Op::kCast || (term->op == Op::kWhere && IsZero(term->src[2])))
    term = term->src[term->op == Op::kWhere ? 1 : 0];
  return term->op == Op::kMul ? term : nullptr;
}

double TermsOf(const UOp* sum) {
  OB_CHECK(sum->op == Op::kReduceLoop);
  double terms = 1;
  absl::flat_hash_set<const UOp*> seen = {sum->src[0]};
  std::vector<const UOp*> open = {sum->src[0]};
  while (!open.empty()) {
    const UOp* const node = open.back();
    open.pop_back();
    if (node->op == Op::kReduceLoop) continue;
    if (node->op == Op::kRange) terms *= static_cast<double>(RangeOf(node).extent());
    for (const UOp* s : node->src)
      if (seen.insert(s).second) open.push_back(s);
  }
  return terms;
}

bool SumsProductsOfF32(const UOp* ast) {
  for (const UOp* node : PostOrder(ast))
    if (const UOp* const product = ProductSummed(node);
        product != nullptr && product->dtype == DType::kF32 && node->dtype == DType::kF32)
      return true;
  return false;
}

}  // namespace outboard::schedule
