// Gradients of tensors: compiler/gradient/gradient.h on this thread's recording.
#include "compiler/gradient/gradient.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "client/autograd/backward.h"
#include "client/lazy/node_builder.h"
#include "client/lazy/realize.h"
#include "client/lazy/thread_state.h"
#include "client/tensor/tensor.h"

namespace outboard {

using internal::NodeBuilder;
using internal::TensorState;

namespace {

void CheckScalarFloat(const NodeBuilder& rec, const UOp* y) {
  if (!IsFloat(y->dtype))
    rec.Invalid(absl::StrCat("a tensor of ", std::string(Name(y->dtype)), " has no gradient"));
  if (!IsStatic(y->shape) || ElementCount(y->shape) != 1)
    rec.Invalid(absl::StrCat("the gradient of a tensor of shape ", internal::DimsToString(y->shape),
                             " needs one element"));
}

}  // namespace

// The same step asks for the same gradients of the same nodes: they are kept.
std::vector<const UOp*> internal::GradientNodes(const NodeBuilder& rec, const UOp* y,
                                                const UOp* upstream,
                                                const std::vector<const UOp*>& wrt) {
  std::vector<const UOp*> key = {y, upstream};
  key.insert(key.end(), wrt.begin(), wrt.end());
  if (const auto* known = rec.lazy_graph()->FindGradient(key)) return *known;
  absl::StatusOr<std::vector<const UOp*>> gradients = Gradient(rec.graph(), y, upstream, wrt);
  ThrowIfError(gradients.status(), rec.at());
  for (const UOp* node : *gradients) rec.lazy_graph()->Note(node, rec.at());
  rec.lazy_graph()->KeepGradient(std::move(key), *gradients);
  return *std::move(gradients);
}

const UOp* internal::UpstreamNode(const NodeBuilder& rec, const UOp* y, const Tensor& upstream) {
  if (upstream.empty()) {
    CheckScalarFloat(rec, y);
    return nullptr;
  }
  if (!IsFloat(y->dtype))
    rec.Invalid(absl::StrCat("a tensor of ", std::string(Name(y->dtype)), " has no gradient"));
  return rec.Cast(rec.Broadcast(upstream.NodeIn(rec), y->shape), y->dtype);
}

std::vector<Tensor> Tensor::gradient(const std::vector<Tensor>& wrt, const Tensor& upstream,
                                     At at) const {
  const NodeBuilder rec(at);
  const UOp* const y = NodeIn(rec);
  const UOp* const dy = internal::UpstreamNode(rec, y, upstream);
  std::vector<const UOp*> nodes;
  for (const Tensor& tensor : wrt) {
    nodes.push_back(tensor.NodeIn(rec));
    if (!IsFloat(nodes.back()->dtype))
      rec.Invalid(
          absl::StrCat("no gradient for a tensor of ", std::string(Name(nodes.back()->dtype))));
    if (internal::IsNumber(nodes.back()))
      throw Error(absl::FailedPreconditionError("gradient: a number repeated over a shape is no "
                                                "variable; realize() it before its first use"),
                  at);
    if (internal::IsOneOfEqualConstants(*tensor.value()))
      throw Error(absl::FailedPreconditionError("gradient: another tensor is the same constant; "
                                                "realize() each before its first use"),
                  at);
  }
  std::vector<Tensor> gradients;
  for (const UOp* node : internal::GradientNodes(rec, y, dy, nodes))
    gradients.push_back(FromNode(rec, node));
  return gradients;
}

void Tensor::backward(At at) const {
  const NodeBuilder rec(at);
  const UOp* const y = NodeIn(rec);
  CheckScalarFloat(rec, y);
  std::vector<std::shared_ptr<TensorState>> leaves;
  std::vector<const UOp*> nodes;
  const std::vector<const UOp*>& inputs = rec.lazy_graph()->InputsOf(y);
  for (std::shared_ptr<TensorState>& leaf : internal::ThreadState::Get().LiveState()) {
    if (!leaf->requires_grad || leaf->lazy()) continue;  // a lazy one was never used
    const UOp* const node = rec.lazy_graph()->NodeOf(leaf->storage, at);
    if (!std::binary_search(inputs.begin(), inputs.end(), node)) continue;
    nodes.push_back(node);
    leaves.push_back(std::move(leaf));
  }
  if (leaves.empty())
    throw Error(absl::FailedPreconditionError(
                    "backward: nothing that this tensor was computed from has requires_grad"),
                at);
  const std::vector<const UOp*> gradients = internal::GradientNodes(rec, y, nullptr, nodes);
  for (size_t i = 0; i < leaves.size(); ++i) {
    const UOp* sum = gradients[i];
    if (leaves[i]->grad != nullptr) {
      sum = rec.Add(internal::NodeOfValue(leaves[i]->grad, rec.lazy_graph(), at), sum);
      rec.Bind(leaves[i]->grad->bound);
    }
    leaves[i]->grad = FromNode(rec, sum).value();
  }
}

Tensor Tensor::grad() const {
  Tensor tensor;
  if (!empty()) tensor.value_ = value_->grad;
  return tensor;
}

void Tensor::set_grad(Tensor grad) {
  if (empty()) return;
  value_->grad = std::move(grad.value_);
  value_->grad_used_up = false;
}

Tensor Tensor::detach(At at) const {
  const NodeBuilder rec(at);
  const UOp* const x = NodeIn(rec);
  return FromNode(rec, rec.Make(Op::kDetach, x->dtype, {x}));
}

Tensor Tensor::contiguous(At at) const {
  const NodeBuilder rec(at);
  const UOp* const x = NodeIn(rec);
  return FromNode(rec, rec.Make(Op::kContiguous, x->dtype, {x}));
}

}  // namespace outboard
