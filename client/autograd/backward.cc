#include "client/autograd/backward.h"

#include <algorithm>
#include <utility>

#include "client/lazy/node_builder.h"
#include "client/lazy/realize.h"
#include "client/lazy/thread_state.h"
#include "compiler/ir/accessors.h"

namespace outboard {
namespace {

using internal::NodeBuilder;
using internal::TensorState;
using internal::ThreadState;
using Values = std::vector<std::shared_ptr<TensorState>>;

// Those whose node or buffer is under `y`, in the order of places, then of making.
void FindVariables(const NodeBuilder& rec, const UOp* y, Values& values,
                   std::vector<const UOp*>& nodes) {
  const auto add = [&](TensorState& value, const UOp* node) {
    if (value.grad_used_up) return;
    values.push_back(value.shared_from_this());
    nodes.push_back(node);
  };
  std::vector<const UOp*> inputs = rec.lazy_graph()->InputsOf(y);
  std::sort(inputs.begin(), inputs.end(),
            [](const UOp* a, const UOp* b) { return BufferOf(a).name() < BufferOf(b).name(); });
  for (const UOp* input : inputs) {
    if (!IsFloat(input->dtype)) continue;
    const std::shared_ptr<internal::CloudBuffer> storage =
        rec.lazy_graph()->StorageAt(BufferOf(input).name());
    for (TensorState* value = storage->first; value != nullptr; value = value->next)
      add(*value, input);
  }
  const std::vector<bool>& under = rec.lazy_graph()->Under(y);
  std::vector<uint8_t> times(under.size());  // that a node is one of these values
  const size_t first = values.size();
  for (TensorState* value = rec.lazy_graph()->first(); value != nullptr; value = value->next) {
    if (value->node->index >= under.size() || !under[value->node->index] ||
        !IsFloat(value->node->dtype) || internal::IsNumber(value->node))
      continue;
    add(*value, value->node);
    times[value->node->index] = std::min(times[value->node->index] + 1, 2);
  }
  // Equal constants are one node: which of them the graph means, it does not say.
  for (size_t i = nodes.size(); i-- > first;) {
    if (times[nodes[i]->index] < 2 || !rec.lazy_graph()->InputsOf(nodes[i]).empty()) continue;
    values.erase(values.begin() + static_cast<int64_t>(i));
    nodes.erase(nodes.begin() + static_cast<int64_t>(i));
  }
}

}  // namespace

bool internal::IsOneOfEqualConstants(const TensorState& value) {
  if (!value.lazy() || !value.lazy_graph->InputsOf(value.node).empty()) return false;
  for (const TensorState* other = value.lazy_graph->first(); other != nullptr; other = other->next)
    if (other != &value && other->node == value.node) return true;
  return false;
}

bool internal::IsNumber(const UOp* node) {
  while (node->op == Op::kReshape || node->op == Op::kExpand) node = node->src[0];
  return node->op == Op::kConst;
}

void backward(const Tensor& y, const Tensor& upstream, At at) {
  const NodeBuilder rec(at);
  const UOp* const root = y.NodeIn(rec);
  const UOp* const dy = internal::UpstreamNode(rec, root, upstream);
  Values values;
  std::vector<const UOp*> nodes;
  FindVariables(rec, root, values, nodes);
  const std::vector<const UOp*> gradients = internal::GradientNodes(rec, root, dy, nodes);
  if (y.value()->lazy()) ThreadState::Get().AddDifferentiated(y.value());
  for (size_t i = 0; i < values.size(); ++i) {
    std::shared_ptr<TensorState>& grad = values[i]->grad;
    if (grad == nullptr) {
      grad = Tensor::FromNode(rec, gradients[i]).value();
      if (!values[i]->requires_grad) ThreadState::Get().AddGraded(values[i]);
      continue;
    }
    const NodeBuilder sum(at);
    sum.Bind(rec.bound());
    const UOp* const before = internal::NodeOfValue(grad, sum.lazy_graph(), at);
    sum.Bind(grad->bound);
    internal::AssignNode(grad, sum, sum.Add(before, sum.Cast(gradients[i], before->dtype)));
  }
}

bool IsGradientUsedUp(const Tensor& tensor) {
  return !tensor.empty() && tensor.value()->grad_used_up;
}

void UseUpGradients(const std::vector<Tensor>& parameters) {
  const auto use_up = [](TensorState& value) {
    if (value.grad == nullptr) return;
    value.grad = nullptr;
    value.grad_used_up = true;
  };
  for (const Tensor& parameter : parameters) use_up(*parameter.value());
  for (const std::weak_ptr<TensorState>& weak : std::exchange(ThreadState::Get().graded, {})) {
    const std::shared_ptr<TensorState> value = weak.lock();
    if (value == nullptr || value->grad == nullptr) continue;
    if (value->requires_grad) continue;  // another optimiser's
    if (value->grad->lazy() && value->grad.use_count() == 1) use_up(*value);
  }
}

std::vector<Tensor> TakeDifferentiated(const Tensor& parameter) {
  const TensorState& of = *parameter.value();
  const std::shared_ptr<internal::CloudBuffer>& storage = of.lazy() ? of.replaced : of.storage;
  std::vector<Tensor> tensors;
  for (const std::weak_ptr<TensorState>& weak :
       std::exchange(ThreadState::Get().differentiated, {})) {
    const std::shared_ptr<TensorState> value = weak.lock();
    if (value == nullptr || !value->lazy() || storage == nullptr) continue;
    internal::LazyGraph& lazy_graph = *value->lazy_graph;
    const std::vector<const UOp*>& inputs = lazy_graph.InputsOf(value->node);
    if (std::all_of(inputs.begin(), inputs.end(), [&](const UOp* input) {
          return lazy_graph.StorageAt(BufferOf(input).name())->session == storage->session;
        }))
      tensors.push_back(Tensor::FromValue(value));
  }
  return tensors;
}

}  // namespace outboard
