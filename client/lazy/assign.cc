// Tensor::assign and replace: a tensor gets another value at the next realize.
#include "absl/strings/str_cat.h"
#include "client/capture/step_observer.h"
#include "client/lazy/items.h"
#include "client/lazy/node_builder.h"
#include "client/lazy/operands.h"
#include "client/lazy/realization.h"
#include "client/lazy/thread_state.h"
#include "client/ops/index/part_of.h"
#include "client/tensor/tensor.h"

namespace outboard {
namespace internal {

void AssignNode(const std::shared_ptr<TensorState>& state, const NodeBuilder& build,
                const UOp* node) {
  if (StepObserver* const step = StepObserver::Current(); step != nullptr)
    step->OnAssign(state, build.at());
  if (!state->lazy()) state->replaced = state->TakeStorage();
  state->SetLazy(build.lazy_graph(), node);
  state->is_stale = false;
  state->bound = build.bound();
  ThreadState::Get().AddPending(state);
}

}  // namespace internal

namespace {

// The shape of `state` in the graph of `build`, also if it is of variables.
Shape ShapeIn(const internal::NodeBuilder& build, internal::TensorState& state) {
  if (state.lazy()) {
    const UOp* const node = internal::LazyNode(state, build.lazy_graph(), build.at());
    build.Bind(state.bound);
    return Shape(node->shape.begin(), node->shape.end());
  }
  Shape shape;
  const internal::CloudBuffer& buffer = *state.storage;
  if (!buffer.is_symbolic) return internal::ToShape(buffer.dims);
  for (const SymInt& size : buffer.sizes) shape.push_back(build.DimOf(size));
  return shape;
}

}  // namespace

Tensor& Tensor::assign(const Arg& arg) {
  const internal::NodeBuilder build(arg.at());
  const std::shared_ptr<internal::TensorState> state = internal::StateOf(*this, arg.at());
  ++state->writes;
  const std::shared_ptr<internal::PartOf> part = state->part;
  // An assign to the view too: a recorded step gives it its new value each time.
  const auto assigned_to_whole = [&] {
    part->written = part->whole.value_->node;
    part->writes = part->whole.value_->writes;
    internal::AssignNode(state, build, part->read(part->whole).NodeIn(build));
  };
  if (part != nullptr && !part->indices.empty()) {
    set_items(part->whole, part->indices, arg);
    assigned_to_whole();
    return *this;
  }
  const Shape shape = ShapeIn(build, *state);
  const UOp* node;
  if (arg.is_tensor()) {
    if (arg.tensor().value_ == value_) return *this;
    node = arg.tensor().NodeIn(build);
    if (node->shape != ShapeView(shape))
      build.Invalid(absl::StrCat("assign: a tensor of shape ", internal::DimsToString(node->shape),
                                 " to one of ", internal::DimsToString(shape)));
    node = build.Cast(node, state->dtype());
  } else {
    const bool whole =
        arg.kind() == Arg::Kind::kSize || (arg.kind() == Arg::Kind::kInt && IsInt(state->dtype()));
    const UOp* const number = whole ? internal::NodeOfArg(build, arg, state->dtype())
                                    : build.Const(state->dtype(), arg.float_value());
    node = build.Cast(build.Full(number, shape), state->dtype());
  }
  if (part != nullptr) {
    part->whole.assign(part->with(part->whole, FromNode(build, node)));
    assigned_to_whole();
    return *this;
  }
  internal::AssignNode(state, build, node);
  return *this;
}

Tensor& Tensor::replace(const Tensor& other, At at) {
  const internal::NodeBuilder build(at);
  const std::shared_ptr<internal::TensorState> state = internal::StateOf(*this, at);
  if (other.value_ == value_) return *this;
  const UOp* const node = other.NodeIn(build);
  const Shape shape = ShapeIn(build, *state);
  if (node->shape != ShapeView(shape))
    build.Invalid(absl::StrCat("replace: a tensor of shape ", internal::DimsToString(node->shape),
                               " for one of ", internal::DimsToString(shape)),
                Mistake::kCheck);
  state->part = nullptr;  // it has another value now, not that of a place in the whole
  internal::AssignNode(state, build, node);
  return *this;
}

}  // namespace outboard
