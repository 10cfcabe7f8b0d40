// Named accessors for a node's arguments. Outside of compiler/ir nothing else reads UOp::arg, so
// its layout (op.h) is known in one place only:
//
//   RangeOf(node).extent()    ParamOf(node).slot()    ShrinkOf(node).begin(axis)
//
// A view is one pointer. Constructing it checks the operation, which costs a comparison; a view of
// another operation is a bug and ends the process. A view is valid as long as its node's graph.
// RESHAPE, EXPAND and IOTA have no view, since their arguments are the node's own shape; the value
// of a CONST is UOp::int_value or UOp::float_value. Threads: as for nodes.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "base/check.h"
#include "compiler/ir/limits.h"
#include "compiler/ir/op.h"
#include "compiler/ir/uop.h"

namespace outboard {

namespace internal {

// A view of a node whose operation is one of kOps.
template <Op... kOps>
class NodeView {
 public:
  const UOp* node() const { return node_; }

 protected:
  explicit NodeView(const UOp* node) : node_(node) {
    if (!((node->op == kOps) || ...))
      CheckFailed(__FILE__, __LINE__, "a reader of another operation's arguments, for",
                  Name(node->op).data());
  }
  int64_t arg(size_t i) const { return node_->arg[i]; }

  const UOp* node_;
};

}  // namespace internal

// ---- leaves -------------------------------------------------------------------------------------

class ParamOf : public internal::NodeView<Op::kParam> {
 public:
  explicit ParamOf(const UOp* param) : NodeView(param) {}
  int64_t slot() const { return arg(0); }
};

// BUFFER: an input named by a number that the client chose.
class BufferOf : public internal::NodeView<Op::kBuffer> {
 public:
  explicit BufferOf(const UOp* buffer) : NodeView(buffer) {}
  int64_t name() const { return arg(0); }
};

// min() <= value <= max() for every binding of the VAR.
class VarOf : public internal::NodeView<Op::kVar> {
 public:
  explicit VarOf(const UOp* var) : NodeView(var) {}
  int64_t slot() const { return arg(0); }
  int64_t min() const { return arg(1); }
  int64_t max() const { return arg(2); }
};

// The bits of a CONST: an integer sign-extended, or those of the double that equals a float.
inline int64_t ConstantBits(const UOp* constant) {
  OB_CHECK(constant->is_const());
  return constant->arg[0];
}

// Whether `node` is a CONST with all bits 0: a zero, but not -0.0.
inline bool IsPositiveZero(const UOp* node) { return node->is_const() && node->arg[0] == 0; }
// Whether `node` is a CONST that equals 0; -0.0 does.
inline bool IsZero(const UOp* node) {
  return IsPositiveZero(node) ||
         (node->is_const() && IsFloat(node->dtype) && node->arg[0] == std::bit_cast<int64_t>(-0.0));
}

// ---- tensors ------------------------------------------------------------------------------------

// PERMUTE: axis i of the node is axis(i) of its source.
class PermuteOf : public internal::NodeView<Op::kPermute> {
 public:
  explicit PermuteOf(const UOp* permute) : NodeView(permute) {}
  absl::Span<const int64_t> axes() const { return node_->arg; }
  int64_t axis(int i) const { return arg(i); }
};

// FLIP: the axes whose elements are in reverse order.
class FlipOf : public internal::NodeView<Op::kFlip> {
 public:
  explicit FlipOf(const UOp* flip) : NodeView(flip) {}
  absl::Span<const int64_t> axes() const { return node_->arg; }
};

// PAD: the number of zeros before (low) and after (high) the elements of an axis.
class PadOf : public internal::NodeView<Op::kPad> {
 public:
  explicit PadOf(const UOp* pad) : NodeView(pad) {}
  Dim low(int axis) const { return node_->arg_dim(2 * axis); }
  Dim high(int axis) const { return node_->arg_dim(2 * axis + 1); }
};

// SHRINK: the elements [begin, end) of an axis.
class ShrinkOf : public internal::NodeView<Op::kShrink> {
 public:
  explicit ShrinkOf(const UOp* shrink) : NodeView(shrink) {}
  Dim begin(int axis) const { return node_->arg_dim(2 * axis); }
  Dim end(int axis) const { return node_->arg_dim(2 * axis + 1); }
};

// EXP2; of f32 in a kernel perhaps by the unit of an NVIDIA GPU (op.h).
class Exp2Of : public internal::NodeView<Op::kExp2> {
 public:
  explicit Exp2Of(const UOp* exp2) : NodeView(exp2) {}
  bool by_unit() const { return !node_->arg.empty(); }
  // Where `by_unit`: otherwise what is below 2^-126 is 0.
  bool has_subnormals() const { return arg(0) == 2; }
};

// REDUCE over axes, or REDUCE_LOOP over RANGEs: op() is ADD, MUL or MAX.
class ReduceOf : public internal::NodeView<Op::kReduce, Op::kReduceLoop> {
 public:
  explicit ReduceOf(const UOp* reduce) : NodeView(reduce) {}
  Op op() const { return static_cast<Op>(arg(0)); }
  // Of a REDUCE, ascending.
  absl::Span<const int64_t> axes() const {
    OB_CHECK(node_->op == Op::kReduce);
    return node_->arg.subspan(1);
  }
  bool reduces(int64_t axis) const {
    const absl::Span<const int64_t> reduced = axes();
    return std::find(reduced.begin(), reduced.end(), axis) != reduced.end();
  }
  // Of a REDUCE_LOOP.
  Sources ranges() const {
    OB_CHECK(node_->op == Op::kReduceLoop);
    return node_->src.subspan(1);
  }
};

// GETTUPLE: one value of a TUPLE.
class GetTupleOf : public internal::NodeView<Op::kGetTuple> {
 public:
  explicit GetTupleOf(const UOp* get) : NodeView(get) {}
  int64_t index() const { return arg(0); }
};

// ---- devices ------------------------------------------------------------------------------------

// LAYOUT: a hint that the value be cut along dim() over the devices of mesh_axis().
class LayoutOf : public internal::NodeView<Op::kLayout> {
 public:
  static constexpr int64_t kAnyAxis = -1;  // the one mesh axis that suits
  static constexpr int64_t kWhole = -1;    // no dimension: whole on every device
  explicit LayoutOf(const UOp* layout) : NodeView(layout) {}
  int64_t mesh_axis() const { return arg(0); }
  int64_t dim() const { return arg(1); }
};

// The group of any collective: the ranks that differ in (rank / stride()) % count() alone.
class CollectiveOf : public internal::NodeView<Op::kUnshard, Op::kReduceScatter, Op::kAllReduce,
                                               Op::kAllToAll, Op::kCopy> {
 public:
  explicit CollectiveOf(const UOp* collective) : NodeView(collective) {}
  int64_t count() const { return arg(node_->arg.size() - 2); }
  int64_t stride() const { return arg(node_->arg.size() - 1); }
};

// UNSHARD: the dimension along which the group's parts are joined.
class UnshardOf : public internal::NodeView<Op::kUnshard> {
 public:
  explicit UnshardOf(const UOp* unshard) : NodeView(unshard) {}
  int64_t dim() const { return arg(0); }
};

// REDUCE_SCATTER: dim() of the fold by op() is cut into equal slices, one for each of the group.
class ReduceScatterOf : public internal::NodeView<Op::kReduceScatter> {
 public:
  explicit ReduceScatterOf(const UOp* reduce_scatter) : NodeView(reduce_scatter) {}
  Op op() const { return static_cast<Op>(arg(0)); }
  int64_t dim() const { return arg(1); }
};

// ALLREDUCE: the fold by op() over the group.
class AllReduceOf : public internal::NodeView<Op::kAllReduce> {
 public:
  explicit AllReduceOf(const UOp* all_reduce) : NodeView(all_reduce) {}
  Op op() const { return static_cast<Op>(arg(0)); }
};

// ALLTOALL: parts along cut_dim() are exchanged and joined along join_dim().
class AllToAllOf : public internal::NodeView<Op::kAllToAll> {
 public:
  explicit AllToAllOf(const UOp* all_to_all) : NodeView(all_to_all) {}
  int64_t cut_dim() const { return arg(0); }
  int64_t join_dim() const { return arg(1); }
};

// COPY: the place in the group whose value all get.
class CopyOf : public internal::NodeView<Op::kCopy> {
 public:
  explicit CopyOf(const UOp* copy) : NodeView(copy) {}
  int64_t root() const { return arg(0); }
};

// Whether `node` is the rank of the device that runs it.
inline bool IsRank(const UOp* node) {
  return node->op == Op::kVar && VarOf(node).slot() == limits::kRankSlot;
}

// Returns whether operands of products of f32 that are summed may be rounded to TF32.
inline bool AllowsTf32(const UOp* sink) {
  return sink->op == Op::kSink && sink->arg.size() > 1 && sink->arg[1] == 1;
}

// Returns a bit for each GLOBAL slot of a kernel whose buffer no kernel of the step writes: what it
// holds is there before the launches that this one waits for are done. A hint of what may be
// fetched early; 0: none is known.
inline int64_t SteadySlots(const UOp* sink) {
  return sink->op == Op::kSink && sink->arg.size() > 2 ? sink->arg[2] : 0;
}

// Returns the argument of a SINK: how many copies of a kernel one launch computes
// (compiler/copies.h), whether TF32 is allowed, and which slots are steady. A graph is one copy,
// and has none; empty: one copy, no TF32, no slot.
inline std::vector<int64_t> SinkArg(int64_t copies, bool allows_tf32, int64_t steady_slots = 0) {
  if (steady_slots != 0) return {copies, allows_tf32 ? 1 : 0, steady_slots};
  if (allows_tf32) return {copies, 1};
  return copies > 1 ? std::vector<int64_t>{copies} : std::vector<int64_t>();
}

// ---- kernels ------------------------------------------------------------------------------------

// GLOBAL: a buffer of a kernel, by its slot.
class GlobalOf : public internal::NodeView<Op::kGlobal> {
 public:
  explicit GlobalOf(const UOp* global) : NodeView(global) {}
  int64_t slot() const { return arg(0); }
  int64_t elements() const { return arg(1); }
};

// Returns the GLOBAL that an INDEX, LOAD or STORE accesses.
inline GlobalOf GlobalOfAccess(const UOp* access) {
  return GlobalOf(access->op == Op::kIndex ? access->src[0] : access->src[0]->src[0]);
}

// Rows that one element of a store of sums adds (SumsPoints): as many as a warp holds of a fragment
// of a GPU's matrix unit. The schedule makes such stores, and kernels compute them.
inline constexpr int64_t kSumRows = 16;

// Whether each element that the STORE names becomes the sum of the values of all points that name
// it.
inline bool SumsPoints(const UOp* store) {
  OB_CHECK(store->op == Op::kStore);
  return !store->arg.empty();
}

class RangeOf : public internal::NodeView<Op::kRange> {
 public:
  explicit RangeOf(const UOp* range) : NodeView(range) {}
  int64_t id() const { return arg(0); }
  int64_t extent() const { return arg(1); }
  RangeKind kind() const { return static_cast<RangeKind>(arg(2)); }
};

inline bool IsRange(const UOp* node, RangeKind kind) {
  return node->op == Op::kRange && RangeOf(node).kind() == kind;
}
// Compares ids, for sorting RANGEs.
inline bool HasSmallerId(const UOp* a, const UOp* b) { return RangeOf(a).id() < RangeOf(b).id(); }

}  // namespace outboard
