// Elements by index: numbers and slices move, tensors gather. Gathers are one-hot sums in the graph
// and loads in a kernel.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/capture/step_observer.h"
#include "client/lazy/items.h"
#include "client/lazy/narrow.h"
#include "client/lazy/node_builder.h"
#include "client/lazy/node_expr.h"
#include "client/lazy/operands.h"
#include "client/ops/index/part_of.h"
#include "client/ops/index/spans.h"
#include "client/ops/window/sliding.h"
#include "client/tensor/tensor.h"
#include "compiler/ir/dims.h"

namespace outboard {

using internal::DimsToString;
using internal::FromTheEnd;
using internal::IndexNode;
using internal::Iota;
using internal::NodeBuilder;
using internal::NodeExpr;
using internal::Span;
using internal::SpanOf;
using internal::TensorOf;

namespace {

// What stands between brackets, sorted out: places along each axis of x, and the axes of the view
// that they leave.
struct Plan {
  struct Axis {
    int of_x = -1;               // or a new one
    const UOp* index = nullptr;  // where a tensor names the places
  };
  std::vector<Span> spans;  // by the axes of x
  std::vector<Axis> view;
};

Plan PlanOf(const NodeBuilder& rec, const Tensor& tensor, const std::vector<Index>& indices) {
  const UOp* const x = tensor.NodeIn(rec);
  int used = 0, ellipses = 0;
  for (const Index& index : indices) {
    const bool ellipsis = std::holds_alternative<Ellipsis>(index.what());
    ellipses += ellipsis;
    used += !ellipsis && !std::holds_alternative<NewAxis>(index.what());
  }
  if (ellipses > 1) rec.Invalid("more than one ellipsis in an index", Mistake::kIndex);
  if (used > x->rank())
    throw Error(absl::OutOfRangeError(
                    absl::StrCat(used, " indices for a tensor of shape ", DimsToString(x->shape))),
                rec.at());
  Plan plan;
  int axis = 0;
  const auto whole = [&] {
    plan.spans.push_back({Dim(0), x->shape[axis]});
    plan.view.push_back({axis++});
  };
  for (const Index& index : indices) {
    if (const auto* place = std::get_if<SymInt>(&index.what())) {
      plan.spans.push_back(SpanOf(rec, x->shape[axis++], *place));
    } else if (const auto* slice = std::get_if<Slice>(&index.what())) {
      plan.spans.push_back(SpanOf(rec, x->shape[axis], *slice));
      plan.view.push_back({axis++});
    } else if (std::holds_alternative<Ellipsis>(index.what())) {
      for (int i = used; i < x->rank(); ++i) whole();
    } else if (std::holds_alternative<NewAxis>(index.what())) {
      plan.view.push_back({});
    } else {
      whole();
      plan.view.back().index = IndexNode(rec, *std::get<const Tensor*>(index.what()));
    }
  }
  while (axis < x->rank()) whole();
  return plan;
}

// x at the places of the plan's spans, in the axes of its view.
const UOp* View(const NodeBuilder& rec, const UOp* x, const Plan& plan) {
  for (size_t axis = 0; axis < plan.spans.size(); ++axis)
    x = internal::Part({rec, x}, static_cast<int>(axis), plan.spans[axis]);
  Shape dims;
  for (const Plan::Axis& axis : plan.view)
    dims.push_back(axis.of_x < 0 ? Dim(1) : x->shape[axis.of_x]);
  return rec.Reshape(x, dims);
}

// Axes of a view that tensors index together, as one axis and one index into it.
struct Together {
  std::vector<int64_t> order;  // of the view, so that the axes stand side by side
  int64_t at = 0, count = 0;   // where they stand then, and how many they are
  Dim length = 1;              // of the one axis
  const UOp* index = nullptr;  // out of range where one of the indices is
};

std::optional<Together> TogetherOf(const NodeBuilder& rec, const UOp* view, const Plan& plan) {
  Together t;
  Shape shape;
  std::vector<int64_t> rest;
  for (int64_t axis = 0; axis < view->rank(); ++axis) {
    const UOp* const index = plan.view[axis].index;
    if (index != nullptr) shape = rec.BroadcastShape(shape, index->shape, "indices");
    (index != nullptr ? t.order : rest).push_back(axis);
  }
  if (t.order.empty()) return std::nullopt;
  t.count = static_cast<int64_t>(t.order.size());
  // In front, if other axes are between them.
  if (t.order.back() - t.order.front() == t.count - 1) t.at = t.order[0];
  const UOp* inside = nullptr;
  const auto spread = [&](const Dim& value) { return rec.Full(rec.ScalarOf(value), shape); };
  for (const int64_t axis : t.order) {
    const Dim length = view->shape[axis];
    const UOp* const index = FromTheEnd({rec, plan.view[axis].index}, length);
    t.length = rec.Product({t.length, length});
    if (t.count == 1) {
      t.index = index;
      continue;
    }
    const UOp* const i = rec.Broadcast(rec.Cast(index, DType::kI64), shape);
    const UOp* const in = rec.Alu(Op::kAnd, rec.Alu(Op::kCmpLt, spread(-1), i),
                                  rec.Alu(Op::kCmpLt, i, spread(length)));
    t.index = t.index == nullptr ? i : rec.Add(rec.Mul(t.index, spread(length)), i);
    inside = inside == nullptr ? in : rec.Alu(Op::kAnd, inside, in);
  }
  if (t.count > 1) t.index = rec.Where(inside, t.index, spread(-1));
  t.order.insert(t.order.begin(), rest.begin(), rest.begin() + t.at);
  t.order.insert(t.order.end(), rest.begin() + t.at, rest.end());
  return t;
}

// The dimensions of `view`, in the order of `t`, with `middle` in place of its axes.
Shape DimsAround(const UOp* view, const Together& t, ShapeView middle) {
  Shape dims;
  for (size_t i = 0; i < t.order.size(); ++i) {
    const auto place = static_cast<int64_t>(i);
    if (place == t.at) dims.insert(dims.end(), middle.begin(), middle.end());
    if (place < t.at || place >= t.at + t.count) dims.push_back(view->shape[t.order[i]]);
  }
  return dims;
}

// The view with its axes that are indexed together as one.
const UOp* Joined(const NodeBuilder& rec, const UOp* view, const Together& t) {
  return rec.Reshape(rec.Permute(view, t.order), DimsAround(view, t, {t.length}));
}

// The view with `value` at the places that `t` names. Of several values for one place the last
// counts.
const UOp* WithRows(const NodeBuilder& rec, const UOp* view, const Together& t, const UOp* value) {
  const Dim length = t.length, count(rec.CountOf(t.index->shape));
  value = rec.Broadcast(value, DimsAround(view, t, t.index->shape));
  if (count == Dim(0) || length == Dim(0)) return view;
  value = rec.Reshape(value, DimsAround(view, t, {count}));
  const NodeExpr index = NodeExpr(rec, t.index).Cast(internal::PlaceType(t.index));
  const Shape pairs = {length, count};
  const NodeExpr is_named =
      index.Reshape({Dim(1), count}).Expand(pairs) == Iota(rec, index->dtype, pairs, 0);
  const NodeExpr last = Where(is_named, Iota(rec, DType::kI32, pairs, 1), -1).Max({1}).Squeeze({1});
  const UOp* const old = Joined(rec, view, t);
  Shape ones(old->shape.size(), Dim(1));
  ones[t.at] = length;
  const NodeExpr is_written = last > -1;
  const UOp* const y = rec.Where(is_written.Reshape(ones).Expand(old->shape),
                                 internal::Gather({rec, value}, static_cast<int>(t.at), last), old);
  Shape turned;
  std::vector<int64_t> back(t.order.size());
  for (size_t i = 0; i < t.order.size(); ++i) {
    turned.push_back(view->shape[t.order[i]]);
    back[t.order[i]] = static_cast<int64_t>(i);
  }
  return rec.Permute(rec.Reshape(y, turned), back);
}

// One place that a variable names. A write to it is spelt as a comparison, which a kernel turns
// into a store of that row (compiler/schedule/gather/row_store.h).
bool IsOneOfAVariable(const NodeBuilder& rec, const Span& span) {
  if (span.low.is_const()) return false;
  const absl::StatusOr<Dim> count = SubtractDims(rec.graph(), span.high, span.low);
  return count.ok() && *count == Dim(1);
}

// x, which is of length 1 along `axis`, as often as `length` says.
const UOp* Stretched(const NodeBuilder& rec, const UOp* x, int axis, const Dim& length) {
  Shape dims(x->shape.begin(), x->shape.end());
  dims[axis] = length;
  return rec.Expand(x, dims);
}

}  // namespace

Tensor Tensor::operator[](const Index& index) const { return (*this)[std::vector<Index>{index}]; }

Tensor Tensor::operator[](const std::vector<Index>& indices) const {
  if (indices.empty()) return *this;
  const NodeBuilder rec(indices[0].at());
  const Plan plan = internal::Settled(rec, [&] { return PlanOf(rec, *this, indices); });
  const UOp* const view = View(rec, NodeIn(rec), plan);
  const std::optional<Together> together = TogetherOf(rec, view, plan);
  if (!together) return FromNode(rec, view);
  return TensorOf(internal::Gather({rec, Joined(rec, view, *together)},
                                   static_cast<int>(together->at), {rec, together->index}));
}

Tensor with_items(const Tensor& x, const std::vector<Index>& indices, const Arg& value) {
  const NodeBuilder rec(value.at());
  const Plan plan = internal::Settled(rec, [&] { return PlanOf(rec, x, indices); });
  const UOp* const old = x.NodeIn(rec);
  const UOp* const view = View(rec, old, plan);
  const UOp* fresh = rec.Cast(internal::NodeOfArg(rec, value, old->dtype), old->dtype);
  const std::optional<Together> together = TogetherOf(rec, view, plan);
  fresh = together ? WithRows(rec, view, *together, fresh) : rec.Broadcast(fresh, view->shape);
  // From the axes of the view to those of x, and to their places.
  Shape dims(plan.spans.size(), Dim(1));
  for (size_t i = 0; i < plan.view.size(); ++i)
    if (plan.view[i].of_x >= 0) dims[plan.view[i].of_x] = view->shape[i];
  fresh = rec.Reshape(fresh, dims);
  const UOp* inside = rec.Full(rec.ConstInt(DType::kBool, 1), dims);
  bool covers = true;
  for (size_t i = 0; i < plan.spans.size(); ++i) {
    if (plan.spans[i].Covers(old->shape[i])) continue;
    const int axis = static_cast<int>(i);
    covers = false;
    if (IsOneOfAVariable(rec, plan.spans[i])) {
      fresh = Stretched(rec, fresh, axis, old->shape[i]);
      const NodeExpr all(rec, Stretched(rec, inside, axis, old->shape[i]));
      const NodeExpr place = Iota(rec, DType::kI64, all->shape, axis);
      inside = all & (place == all.With(rec.Full(plan.spans[i].low.expression(), all->shape)));
      continue;
    }
    fresh = internal::Spread({rec, fresh}, axis, plan.spans[i], old->shape[i]);
    inside = internal::Spread({rec, inside}, axis, plan.spans[i], old->shape[i]);
  }
  return Tensor::FromNode(rec, covers ? fresh : rec.Where(inside, fresh, old));
}

bool internal::Lasts(const TensorState& value) {
  return value.storage != nullptr || value.replaced != nullptr || value.is_state ||
         value.part != nullptr;
}

bool internal::PartOf::IsOnlyReader() const {
  for (const PartOf* part = this; part != nullptr; part = part->whole.value()->part.get())
    if (part->whole.value().use_count() > 1) return false;
  return true;
}

void internal::FollowWhole(TensorState& value) {
  if (value.part == nullptr || value.is_state) return;
  const std::shared_ptr<PartOf> part = value.part;
  TensorState& whole = *part->whole.value();
  FollowWhole(whole);
  if (std::exchange(part->writes, whole.writes) == whole.writes) return;
  const Tensor now = part->read(part->whole);
  BecomeLazy(value, *now.value());
  ++value.writes;
}

Tensor part(const Tensor& x, const std::vector<Index>& indices) {
  const Tensor y = x[indices];
  const bool by_tensors = std::any_of(indices.begin(), indices.end(), [](const Index& index) {
    return std::holds_alternative<const Tensor*>(index.what());
  });
  if (by_tensors || y.value() == x.value() || !internal::Lasts(*x.value())) return y;
  y.value()->part = std::make_shared<internal::PartOf>(
      internal::PartOf{x, [indices](const Tensor& whole) { return whole[indices]; },
                       [indices](const Tensor& whole, const Tensor& value) {
                         return with_items(whole, indices, value);
                       },
                       indices, nullptr, x.value()->writes});
  return y;
}

void set_items(Tensor& x, const std::vector<Index>& indices, const Arg& value) {
  const CallSite site(value.at());
  const Tensor now = with_items(x, indices, value);
  if (internal::Lasts(*x.value())) {
    x.assign(now);
    return;
  }
  if (internal::StepObserver* const step = internal::StepObserver::Current(); step != nullptr)
    step->OnAssign(x.value(), value.at());
  internal::BecomeLazy(*x.value(), *now.value());
}

Tensor Tensor::take(const Tensor& index, int64_t axis, At at) const {
  const NodeBuilder rec(at);
  const NodeExpr x = ExprOf(rec, *this), wanted = IndexNode(rec, index);
  const int place = rec.Axis(axis, x->rank());
  return TensorOf(internal::Gather(x, place, FromTheEnd(wanted, x->shape[place])));
}

Tensor Tensor::gather(int64_t axis, const Tensor& index, At at) const {
  const NodeBuilder rec(at);
  const NodeExpr x = ExprOf(rec, *this), wanted = IndexNode(rec, index);
  const int place = rec.Axis(axis, x->rank());
  bool fits = wanted->rank() == x->rank();
  for (int i = 0; fits && i < x->rank(); ++i)
    fits = i == place || wanted->shape[i] == x->shape[i] || wanted.Length(i) <= x.Length(i);
  if (!fits)
    rec.Invalid(absl::StrCat("gather: an index of ", DimsToString(wanted->shape), " along axis ",
                             place, " of ", DimsToString(x->shape)),
                Mistake::kCheck);
  return TensorOf(internal::GatherAlong(x, place, FromTheEnd(wanted, x->shape[place])));
}

Tensor Tensor::one_hot(int64_t classes, DType dtype, At at) const {
  const NodeBuilder rec(at);
  const NodeExpr x = ExprOf(rec, *this);
  if (!IsInt(x->dtype))
    rec.Invalid(absl::StrCat("one_hot: needs integers, not ", std::string(Name(x->dtype))));
  Shape ones(x->shape.begin(), x->shape.end()), full = ones;
  ones.emplace_back(1);
  full.emplace_back(classes);
  const bool wide = ByteWidth(x->dtype) == 8 || x->dtype == DType::kU32;
  const DType type = wide ? DType::kI64 : DType::kI32;
  const NodeExpr wanted = x.Cast(type).Reshape(ones).Expand(full);
  return TensorOf((Iota(rec, type, full, x->rank()) == wanted).Cast(dtype));
}

}  // namespace outboard
