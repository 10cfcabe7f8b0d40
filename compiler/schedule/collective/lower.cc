#include "compiler/schedule/collective/lower.h"

#include <algorithm>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/check.h"
#include "compiler/ir/accessors.h"
#include "compiler/ir/build.h"

namespace outboard::schedule {
namespace {

// An ALLREDUCE of at most this size is one transfer instead of two: there the count of messages
// decides its time and not the bytes (64 KiB take 0.5 ms at 1 Gbit/s, as a message to a distant
// machine does).
constexpr int64_t kGatherBytesMax = 64 << 10;

class Lowering {
 public:
  explicit Lowering(Graph& graph) : g_(graph) {}

  absl::StatusOr<const UOp*> Run(const UOp* sink) {
    for (const UOp* node : PostOrder(sink)) {
      std::vector<const UOp*> src;
      for (const UOp* source : node->src) src.push_back(made_.at(source));
      if (IsCollective(node->op)) {
        OB_ASSIGN_OR_RETURN(made_[node], Lower(node, src[0]));
      } else if (std::equal(src.begin(), src.end(), node->src.begin())) {
        made_[node] = node;
      } else {
        OB_ASSIGN_OR_RETURN(made_[node], g_.WithSources(node, src));
      }
    }
    return made_.at(sink);
  }

 private:
  using Node = absl::StatusOr<const UOp*>;

  Node Lower(const UOp* node, const UOp* x) {
    const CollectiveOf group(node);
    count_ = group.count();
    stride_ = group.stride();
    if (count_ == 1) return x;
    if (std::any_of(node->shape.begin(), node->shape.end(),
                    [](const Dim& dim) { return dim.is_const() && dim.value() == 0; }))
      return Empty(node);
    switch (node->op) {
      case Op::kUnshard: return Unshard(node, x);
      case Op::kAllToAll: {
        const int64_t cut = AllToAllOf(node).cut_dim(), join = AllToAllOf(node).join_dim();
        OB_ASSIGN_OR_RETURN(const UOp* parts, Exchange(x, cut));
        return Joined(parts, join, node->shape);
      }
      case Op::kReduceScatter: {
        OB_ASSIGN_OR_RETURN(const UOp* rows, Exchange(x, ReduceScatterOf(node).dim()));
        return Fold(ReduceScatterOf(node).op(), rows);
      }
      case Op::kAllReduce: return AllReduce(node, x);
      default: return g_.WithSources(node, {x});  // COPY
    }
  }

  // A value without elements: any value will do.
  Node Empty(const UOp* node) {
    const UOp* const zero = ConstOf(g_, node->dtype, 0);
    OB_ASSIGN_OR_RETURN(const UOp* ones, Reshaped(zero, Shape(node->shape.size(), Dim(1))));
    return Made(Op::kExpand, ones, node->shape);
  }

  Node Unshard(const UOp* node, const UOp* x) {
    OB_ASSIGN_OR_RETURN(const UOp* parts, Gathered(x));
    return Joined(parts, UnshardOf(node).dim(), node->shape);
  }

  Node AllReduce(const UOp* node, const UOp* x) {
    const Op op = AllReduceOf(node).op();
    const bool fixed = IsStatic(x->shape);
    const int64_t elements = fixed ? ElementCount(x->shape) : 0;
    if (!fixed || count_ == 2 || elements * ByteWidth(x->dtype) <= kGatherBytesMax) {
      OB_ASSIGN_OR_RETURN(const UOp* rows, Gathered(x));
      return Fold(op, rows);
    }
    const int64_t part = (elements + count_ - 1) / count_;
    OB_ASSIGN_OR_RETURN(const UOp* flat, Reshaped(x, Shape{elements}));
    if (part * count_ > elements) {
      OB_ASSIGN_OR_RETURN(flat, Made(Op::kPad, flat, Shape{0, part * count_ - elements}));
    }
    OB_ASSIGN_OR_RETURN(const UOp* rows, Exchange(flat, 0));
    OB_ASSIGN_OR_RETURN(const UOp* mine, Fold(op, rows));
    OB_ASSIGN_OR_RETURN(const UOp* all, Gathered(mine));
    OB_ASSIGN_OR_RETURN(all, Reshaped(all, Shape{part * count_}));
    if (part * count_ > elements) {
      OB_ASSIGN_OR_RETURN(all, Made(Op::kShrink, all, Shape{0, elements}));
    }
    return Reshaped(all, node->shape);
  }

  // The values of all ranks: [n, shape of x].
  Node Gathered(const UOp* x) {
    Shape row = {1};
    row.insert(row.end(), x->shape.begin(), x->shape.end());
    OB_ASSIGN_OR_RETURN(const UOp* mine, Reshaped(x, row));
    return g_.Make(Op::kUnshard, DType::kVoid, {mine}, {0, count_, stride_});
  }

  // The parts along `dim` that all ranks have for this one: [n, shape of a part].
  Node Exchange(const UOp* x, int64_t dim) {
    Shape split(x->shape.begin(), x->shape.end());
    split[dim] = Dim(split[dim].value() / count_);
    split.insert(split.begin() + dim, Dim(count_));
    OB_ASSIGN_OR_RETURN(const UOp* parts, Reshaped(x, split));
    std::vector<int64_t> axes = {dim};
    for (int64_t axis = 0; axis < static_cast<int64_t>(split.size()); ++axis)
      if (axis != dim) axes.push_back(axis);
    OB_ASSIGN_OR_RETURN(parts, Permuted(parts, axes));
    return g_.Make(Op::kAllToAll, DType::kVoid, {parts}, {0, 0, count_, stride_});
  }

  // [n, part] with the parts one after the other along `dim`.
  Node Joined(const UOp* parts, int64_t dim, ShapeView shape) {
    std::vector<int64_t> axes;
    for (int64_t axis = 1; axis < parts->rank(); ++axis) {
      if (axis == dim + 1) axes.push_back(0);
      axes.push_back(axis);
    }
    OB_ASSIGN_OR_RETURN(const UOp* joined, Permuted(parts, axes));
    return Reshaped(joined, shape);
  }

  // The rows of [n, shape], folded.
  Node Fold(Op op, const UOp* rows) {
    const DType dtype = rows->dtype;
    const bool narrow = IsFloat(dtype) && ByteWidth(dtype) < ByteWidth(DType::kF32);
    const ShapeView shape = rows->shape.subspan(1);
    const UOp* fold = nullptr;
    for (int64_t i = 0; i < count_; ++i) {
      Shape box = {i, i + 1};
      for (const Dim& dim : shape) {
        box.emplace_back(0);
        box.push_back(dim);
      }
      OB_ASSIGN_OR_RETURN(const UOp* row, Made(Op::kShrink, rows, box));
      OB_ASSIGN_OR_RETURN(row, Reshaped(row, shape));
      if (narrow) {
        OB_ASSIGN_OR_RETURN(row, g_.Make(Op::kCast, DType::kF32, {row}));
      }
      if (fold == nullptr) {
        fold = row;
      } else {
        OB_ASSIGN_OR_RETURN(fold, g_.Make(op, DType::kVoid, {fold, row}));
      }
    }
    return narrow ? g_.Make(Op::kCast, dtype, {fold}) : Node(fold);
  }

  Node Made(Op op, const UOp* x, ShapeView dims) {
    std::vector<int64_t> arg;
    std::vector<const UOp*> src = {x};
    AppendDims(dims, arg, src);
    return g_.Make(op, DType::kVoid, src, arg);
  }
  Node Reshaped(const UOp* x, ShapeView dims) {
    return x->shape == dims ? Node(x) : Made(Op::kReshape, x, dims);
  }
  Node Permuted(const UOp* x, const std::vector<int64_t>& axes) {
    if (std::is_sorted(axes.begin(), axes.end())) return x;
    return g_.Make(Op::kPermute, DType::kVoid, {x}, axes);
  }

  Graph& g_;
  absl::flat_hash_map<const UOp*, const UOp*> made_;
  int64_t count_ = 1, stride_ = 1;  // of the collective that is being written
};

}  // namespace

absl::StatusOr<const UOp*> LowerCollectives(Graph& graph, const UOp* sink) {
  return Lowering(graph).Run(sink);
}

}  // namespace outboard::schedule
