#include "compiler/shard/rules.h"

#include <algorithm>
#include <array>
#include <optional>

#include "base/check.h"
#include "compiler/ir/accessors.h"

namespace outboard::shard {
namespace {

constexpr auto kFlows = [] {
  std::array<DimFlow, kOpCodeMax> t{};
  const auto set = [&](Op op, DimFlow flow) { t[static_cast<size_t>(op)] = flow; };
  set(Op::kParam, DimFlow::kLeaf);
  set(Op::kConst, DimFlow::kLeaf);
  set(Op::kVar, DimFlow::kLeaf);
  set(Op::kIota, DimFlow::kIota);
  set(Op::kReshape, DimFlow::kReshape);
  set(Op::kPermute, DimFlow::kPermute);
  set(Op::kExpand, DimFlow::kExpand);
  set(Op::kPad, DimFlow::kWindow);
  set(Op::kShrink, DimFlow::kWindow);
  set(Op::kFlip, DimFlow::kWindow);
  for (int op = static_cast<int>(Op::kNeg); op <= static_cast<int>(Op::kWhere); ++op)
    t[op] = DimFlow::kElementwise;  // every unary, binary and ternary operation of tensors
  set(Op::kCast, DimFlow::kElementwise);
  set(Op::kBitcast, DimFlow::kElementwise);
  set(Op::kContiguous, DimFlow::kElementwise);
  set(Op::kDetach, DimFlow::kElementwise);
  set(Op::kLayout, DimFlow::kElementwise);
  set(Op::kAssign, DimFlow::kElementwise);
  set(Op::kReduce, DimFlow::kReduce);
  return t;
}();

// ---- reshapes
// -------------------------------------------------------------------------------------------------

// Dimensions [begin, end) of one shape that hold the same elements as some of another.
struct DimGroup {
  int from_begin, from_end, to_begin, to_end;
};

// Splits a RESHAPE into its smallest groups. A symbolic dimension is a group with its equal alone;
// where it has none, the rest is one group, through which no cut passes.
std::vector<DimGroup> GroupsOf(ShapeView from, ShapeView to) {
  std::vector<DimGroup> groups;
  const int from_rank = static_cast<int>(from.size()), to_rank = static_cast<int>(to.size());
  int i = 0, j = 0;
  while (i < from_rank || j < to_rank) {
    DimGroup group{i, i, j, j};
    if (i < from_rank && j < to_rank && from[i] == to[j]) {
      group.from_end = ++i;
      group.to_end = ++j;
    } else if (i < from_rank && from[i] == Dim(1)) {  // so that the way back has the same groups
      group.from_end = ++i;
    } else if (j < to_rank && to[j] == Dim(1)) {
      group.to_end = ++j;
    } else {
      __int128 left = 1, right = 1;
      bool fits = true;
      do {
        const bool take_left = j >= to_rank || (i < from_rank && left <= right);
        const Dim& dim = take_left ? from[i] : to[j];
        fits = fits && dim.is_const() && dim.value() > 0;
        if (!fits) break;
        (take_left ? left : right) *= dim.value();
        ++(take_left ? i : j);
      } while (left != right && (i < from_rank || j < to_rank));
      if (!fits) {
        i = from_rank;
        j = to_rank;
      }
      group.from_end = i;
      group.to_end = j;
    }
    groups.push_back(group);
  }
  return groups;
}

// The first dimension of [begin, end) that is longer than 1, or -1.
int LeadingDim(ShapeView shape, int begin, int end) {
  for (int dim = begin; dim < end; ++dim)
    if (shape[dim] != Dim(1)) return dim;
  return -1;
}

__int128 Inside(ShapeView shape, int dim, int end) {
  __int128 inside = 1;
  while (++dim < end) inside *= shape[dim].value();
  return inside;
}

// The sharding of a value of shape `to` that has the elements of `p`, of shape `from`; nullopt for
// a cut that does not pass. With `partly` those cuts are left out instead.
std::optional<Sharding> ThroughReshape(ShapeView from, const Sharding& p, ShapeView to,
                                       bool partly) {
  Sharding q = WholeSharding(static_cast<int>(to.size()));
  q.partial = p.partial;
  q.soft = p.soft;
  if (p.cut_axes() == 0) return q;
  for (const DimGroup& g : GroupsOf(from, to)) {
    for (int dim = g.from_begin; dim < g.from_end; ++dim) {
      const DimCut& cut = p.dims[dim];
      if (cut.axes == 0) continue;
      const int single = g.from_end == g.from_begin + 1 && g.to_end == g.to_begin + 1;
      if (single && from[dim] == to[g.to_begin]) {
        q.dims[g.to_begin] = cut;
        continue;
      }
      const bool is_const = IsStatic(from.subspan(g.from_begin, g.from_end - g.from_begin)) &&
                            IsStatic(to.subspan(g.to_begin, g.to_end - g.to_begin));
      const int target = is_const ? LeadingDim(to, g.to_begin, g.to_end) : -1;
      if (target >= 0 && LeadingDim(from, g.from_begin, g.from_end) == dim) {
        const __int128 elements = cut.chunk * Inside(from, dim, g.from_end);
        const __int128 inside = Inside(to, target, g.to_end);
        if (inside > 0 && elements > 0 && elements % inside == 0 &&
            elements / inside <= to[target].value()) {
          q.dims[target] = {cut.axes, static_cast<int64_t>(elements / inside)};
          continue;
        }
      }
      if (!partly) return std::nullopt;
    }
  }
  return q;
}

// ---- partial sums
// -------------------------------------------------------------------------------------------------

// Whether the sum of casts is the cast of the sum.
bool CastIsLinear(DType from, DType to) {
  if (IsInt(from) && IsInt(to)) return ByteWidth(to) <= ByteWidth(from);
  return IsFloat(from) && IsFloat(to) && ByteWidth(to) >= ByteWidth(from) && ByteWidth(to) >= 4;
}

// Which of the sources of an elementwise operation are partial sums where its result is: a mask, 0
// if the operation is not linear. `partial_source` is the one that is, for MUL.
uint32_t LinearSources(const UOp* node, int partial_source) {
  switch (node->op) {
    case Op::kAdd: return AddsInF32(node->dtype) ? 0 : 3;
    case Op::kNeg: return AddsInF32(node->dtype) ? 0 : 1;
    case Op::kMul: return AddsInF32(node->dtype) ? 0 : 1u << partial_source;
    case Op::kFDiv: return AddsInF32(node->dtype) || partial_source != 0 ? 0 : 1;
    case Op::kCast: return CastIsLinear(node->src[0]->dtype, node->dtype) ? 1 : 0;
    case Op::kContiguous:
    case Op::kDetach:
    case Op::kLayout: return 1;
    default: return 0;
  }
}

// ---- elementwise
// -------------------------------------------------------------------------------------------------

// The bytes of what a value is made from by movements and operations of one source: what it costs
// to move it at its smallest.
double CoreBytes(const Mesh& mesh, const UOp* node) {
  double least = 1e300;
  for (int steps = 0; steps < 16; ++steps) {
    double bytes = ByteWidth(node->dtype);
    for (const Dim& dim : node->shape) bytes *= static_cast<double>(dim.max());
    least = std::min(least, bytes);
    if (node->own_sources() != 1 || FlowOf(node->op) == DimFlow::kReduce ||
        FlowOf(node->op) == DimFlow::kNone)
      break;
    node = node->src[0];
  }
  return least;
}

// Sets the cuts of `out`, which is whole. `conflict`: the sources are not all cut alike.
void CutElementwise(const Mesh& mesh, const UOp* node, SourceShardings sources, bool conflict,
                    Sharding& out) {
  absl::InlinedVector<int, 4> order;
  for (int i = 0; i < static_cast<int>(sources.size()); ++i) order.push_back(i);
  // What an ASSIGN stores replaces the old value where it lies.
  if (conflict && node->op != Op::kAssign)
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
      return CoreBytes(mesh, node->src[a]) > CoreBytes(mesh, node->src[b]);
    });
  for (const bool soft : {false, true}) {
    for (const int i : order) {
      const Sharding& s = *sources[i];
      for (int dim = 0; dim < node->rank(); ++dim) {
        const DimCut& cut = s.dims[dim];
        const bool is_soft = cut.axes != 0 && (cut.axes & ~s.soft) == 0;
        if (cut.axes == 0 || is_soft != soft || out.dims[dim].axes != 0 ||
            (cut.axes & out.cut_axes()) != 0)
          continue;
        out.dims[dim] = cut;
        if (soft) out.soft |= cut.axes;
      }
    }
  }
}

Sharding ForwardElementwise(const Mesh& mesh, const UOp* node, SourceShardings sources) {
  Sharding out = WholeSharding(node->rank());
  AxisSet cut_axes = 0, partial_axes = 0;
  bool conflict = false;
  for (size_t i = 0; i < sources.size(); ++i) {
    cut_axes |= sources[i]->cut_axes();
    partial_axes |= sources[i]->partial;
    conflict = conflict || sources[i]->dims != sources[0]->dims;
  }
  if (cut_axes != 0) CutElementwise(mesh, node, sources, conflict, out);
  if (partial_axes == 0) return out;
  for (int axis = 0; axis < mesh.axes(); ++axis) {
    const AxisSet bit = 1 << axis;
    if (out.cut_axes() & bit) continue;
    uint32_t partial = 0;
    for (size_t i = 0; i < sources.size(); ++i)
      if (sources[i]->partial & bit) partial |= 1u << i;
    if (partial == 0) continue;
    const int first = partial & 1 ? 0 : 1;
    // A product has one factor that is partial, over whichever axes.
    const bool other_factor = node->op == Op::kMul && out.partial != 0 &&
                              (sources[first]->partial & out.partial) != out.partial;
    if (!other_factor && LinearSources(node, first) == partial) out.partial |= bit;
  }
  return out;
}

// Sums are made by REDUCE alone: a value that is none cannot be wanted as one.
bool HasSums(const Sharding& source, const Sharding& want) {
  return (want.partial & ~source.partial) == 0;
}

bool DemandElementwise(const UOp* node, const Sharding& out, SourceShardings sources,
                       std::vector<Sharding>& wants) {
  int partial_source = 0;
  if (out.partial != 0) {
    for (size_t i = 0; i < sources.size(); ++i)
      if ((sources[i]->partial & out.partial) == out.partial) {
        partial_source = static_cast<int>(i);
        break;
      }
  }
  const uint32_t linear = out.partial == 0 ? 0 : LinearSources(node, partial_source);
  if (out.partial != 0 && linear == 0) return false;
  for (size_t i = 0; i < sources.size(); ++i) {
    wants.push_back(out);
    if ((linear >> i & 1) == 0) wants.back().partial = 0;
    if (!HasSums(*sources[i], wants.back())) return false;
  }
  return true;
}

// Whether a movement of fixed sort leaves a dimension as it is.
bool Keeps(const UOp* node, int dim) {
  switch (node->op) {
    case Op::kPad: return PadOf(node).low(dim) == Dim(0) && PadOf(node).high(dim) == Dim(0);
    case Op::kShrink:
      return ShrinkOf(node).begin(dim) == Dim(0) &&
             ShrinkOf(node).end(dim) == node->src[0]->shape[dim];
    case Op::kFlip: {
      const auto axes = FlipOf(node).axes();
      return std::find(axes.begin(), axes.end(), dim) == axes.end();
    }
    default: return node->shape[dim] == node->src[0]->shape[dim];  // EXPAND
  }
}

}  // namespace

DimFlow FlowOf(Op op) {
  const auto code = static_cast<size_t>(op);
  return code < kFlows.size() ? kFlows[code] : DimFlow::kNone;
}

Sharding Forward(const Mesh& mesh, const UOp* node, SourceShardings sources) {
  Sharding out = WholeSharding(node->rank());
  switch (FlowOf(node->op)) {
    case DimFlow::kElementwise: return ForwardElementwise(mesh, node, sources);
    case DimFlow::kReshape:
      return *ThroughReshape(node->src[0]->shape, *sources[0], node->shape, /*partly=*/true);
    case DimFlow::kPermute:
      out.partial = sources[0]->partial;
      out.soft = sources[0]->soft;
      for (int i = 0; i < node->rank(); ++i)
        out.dims[i] = sources[0]->dims[PermuteOf(node).axis(i)];
      return out;
    case DimFlow::kExpand:
    case DimFlow::kWindow: {
      // An expanded partial sum would have to be added as often as it is expanded. What is stored
      // in parts is joined before it is repeated: so weights are gathered where they are read.
      const bool grows = node->op == Op::kExpand && node->shape != node->src[0]->shape;
      if (!grows) out.partial = sources[0]->partial;
      out.soft = sources[0]->soft;
      for (int i = 0; i < node->rank(); ++i) {
        const DimCut& cut = sources[0]->dims[i];
        if (Keeps(node, i) && !(grows && (cut.axes & ~out.soft) == 0)) out.dims[i] = cut;
      }
      return out;
    }
    case DimFlow::kReduce: {
      const ReduceOf reduce(node);
      AxisSet summed = sources[0]->partial;
      out.soft = sources[0]->soft;
      for (int i = 0; i < node->rank(); ++i) {
        if (reduce.reduces(i)) {
          summed |= sources[0]->dims[i].axes;
        } else {
          out.dims[i] = sources[0]->dims[i];
        }
      }
      if (reduce.op() == Op::kAdd) out.partial = summed;
      return out;
    }
    default: return out;
  }
}

bool Demand(const Mesh& mesh, const UOp* node, const Sharding& out,
            SourceShardings sources, std::vector<Sharding>& wants) {
  wants.clear();
  if ((out.cut_axes() & out.partial) != 0) return false;
  switch (FlowOf(node->op)) {
    case DimFlow::kNone: return false;
    case DimFlow::kLeaf: return out.is_whole();
    case DimFlow::kIota: return out.partial == 0;
    case DimFlow::kElementwise: return DemandElementwise(node, out, sources, wants);
    case DimFlow::kReshape: {
      std::optional<Sharding> in =
          ThroughReshape(node->shape, out, node->src[0]->shape, /*partly=*/false);
      if (!in) return false;
      // Back again, or the parts would not be those that are wanted.
      const std::optional<Sharding> again =
          ThroughReshape(node->src[0]->shape, *in, node->shape, /*partly=*/false);
      if (!again || !(*again == out)) return false;
      wants.push_back(*std::move(in));
      return HasSums(*sources[0], out);
    }
    case DimFlow::kPermute: {
      Sharding in = out;
      for (int i = 0; i < node->rank(); ++i) in.dims[PermuteOf(node).axis(i)] = out.dims[i];
      wants.push_back(std::move(in));
      return HasSums(*sources[0], out);
    }
    case DimFlow::kExpand: {
      if (out.partial != 0 && node->shape != node->src[0]->shape) return false;
      Sharding in = out;
      for (int i = 0; i < node->rank(); ++i)
        if (!Keeps(node, i)) in.dims[i] = {};
      wants.push_back(std::move(in));
      return HasSums(*sources[0], out);
    }
    case DimFlow::kWindow:
      for (int i = 0; i < node->rank(); ++i)
        if (out.dims[i].axes != 0 && !Keeps(node, i)) return false;
      wants.push_back(out);
      return HasSums(*sources[0], out);
    case DimFlow::kReduce: {
      const ReduceOf reduce(node);
      const bool add = reduce.op() == Op::kAdd;
      if (!add && out.partial != 0) return false;
      Sharding in = out;
      AxisSet summed = 0;
      for (int i = 0; i < node->rank(); ++i) {
        if (!reduce.reduces(i)) continue;
        if (out.dims[i].axes != 0) return false;
        const DimCut& cut = sources[0]->dims[i];
        // MAX and MUL are folded over the devices at once, so any axis that is free will do.
        const AxisSet allowed = add ? out.partial : static_cast<AxisSet>(~out.cut_axes());
        if (cut.axes == 0 || (cut.axes & ~allowed) != 0) continue;
        in.dims[i] = cut;
        summed |= cut.axes;
      }
      in.partial = out.partial & ~summed;
      if ((sources[0]->partial & in.partial) != in.partial) return false;
      wants.push_back(std::move(in));
      return true;
    }
  }
  return false;
}

}  // namespace outboard::shard
