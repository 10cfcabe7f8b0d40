#include "client/capture/repeat_step.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/lazy/node_builder.h"
#include "client/lazy/realize.h"
#include "client/lazy/sym_expression.h"
#include "client/lazy/thread_state.h"
#include "compiler/ir/accessors.h"
#include "wire/limits.h"

namespace outboard::internal {
namespace {

std::vector<std::shared_ptr<TensorState>> Living(
    const std::vector<std::weak_ptr<TensorState>>& values) {
  std::vector<std::shared_ptr<TensorState>> living;
  for (const std::weak_ptr<TensorState>& weak : values)
    if (std::shared_ptr<TensorState> value = weak.lock(); value != nullptr)
      living.push_back(std::move(value));
  return living;
}

}  // namespace

void RepeatStep::Refuse(const At& at, const std::string& what) const {
  throw Error(absl::FailedPreconditionError(absl::StrCat("repeat: ", what)), at);
}

RepeatStep::RepeatStep(int64_t count, const SymInt* index, const At& at) : at_(at) {
  if (Current() != nullptr) Current()->Refuse(at, "a step is repeated within the step");
  if (count < 1 || count > wire::kRepeatMax)
    ThrowInvalid(at, absl::StrCat("repeat: ", count, " times; 1 to ", wire::kRepeatMax));
  repetition_.count = count;
  if (index != nullptr) {
    if (index->is_number() || !index->expression()->variable)
      ThrowInvalid(at, "repeat: the index is a variable that is bound, and nothing else");
    repetition_.index = index->expression()->variable;
    const auto& [variable, first] = *repetition_.index;
    if (count - 1 > variable.max() - first)
      ThrowInvalid(at, absl::StrCat("repeat: variable ", variable.name(), " goes from ", first,
                                    " to ", first + count - 1, ", which is not in ", variable.min(),
                                    "..", variable.max()));
  }
  for (const std::shared_ptr<TensorState>& state : ThreadState::Get().LiveState())
    if (state->grad != nullptr)
      Refuse(at,
             "a parameter has a gradient from before, which only the first step would add to; "
             "zero_grad() or step() before");
  RandomState(at);
  RealizeValues({}, {}, at);
  Enter();
}

RepeatStep::~RepeatStep() {
  Leave();
  if (finished_) return;
  for (const std::shared_ptr<TensorState>& value : assigned_)
    if (value->lazy() && value->replaced != nullptr)
      value->SetStorage(std::exchange(value->replaced, nullptr));
  ThreadState::Get().pending.clear();
  for (const std::shared_ptr<TensorState>& state : ThreadState::Get().LiveState())
    state->grad = nullptr;
}

// ---- the step -----------------------------------------------------------------------------------

void RepeatStep::OnRead(const std::shared_ptr<TensorState>& value, const At& at) {
  if (IsMade(*value)) return;
  if (!value->lazy()) {
    repetition_.readers[value->storage.get()].insert(value.get());
    return;
  }
  if (std::find(assigned_.begin(), assigned_.end(), value) == assigned_.end())
    ReadsAsBefore(*value, at);
}

// What was computed before the step keeps the values of then.
void RepeatStep::ReadsAsBefore(TensorState& value, const At& at) {
  const std::shared_ptr<LazyGraph>& lazy_graph = LazyGraph::Current();
  for (const UOp* input : lazy_graph->InputsOf(LazyNode(value, lazy_graph, at)))
    repetition_.readers[lazy_graph->StorageAt(BufferOf(input).name()).get()].insert(nullptr);
}

void RepeatStep::OnAssign(const std::shared_ptr<TensorState>& value, const At& at) {
  if (IsMade(*value) || std::find(assigned_.begin(), assigned_.end(), value) != assigned_.end())
    return;
  if (value->lazy())
    Refuse(at,
           "the step assigns to a tensor that was not realised before it; realize() it, or declare "
           "it state_(), before repeat()");
  assigned_.push_back(value);
}

bool RepeatStep::OnRealize(const std::vector<std::shared_ptr<TensorState>>& values,
                           const std::vector<std::shared_ptr<TensorState>>& fetch, const At& at) {
  if (realized_at_)
    Refuse(at, absl::StrCat("the step realises a second time, after ", LineOf(*realized_at_),
                            "; one step is one Run"));
  realized_at_ = at;
  for (const std::shared_ptr<TensorState>& value : values) {
    if (value->lazy() && !IsMade(*value)) OnRead(value, at);
    values_.push_back(value);
  }
  fetch_.assign(fetch.begin(), fetch.end());
  return true;
}

void RepeatStep::OnState(const TensorState& value, const At& at) const {
  if (IsMade(value)) Refuse(at, "the step makes state of its own, which each step would make anew");
  Refuse(at,
         "a parameter is read after the step has assigned it; the next step reads the new value");
}

// ---- the end ------------------------------------------------------------------------------------

void RepeatStep::CheckNothingIsLeft(const std::vector<Tensor>& returned) const {
  for (const std::shared_ptr<TensorState>& state : ThreadState::Get().LiveState())
    if (state->grad != nullptr)
      Refuse(at_,
             "the step leaves a gradient behind, to which the next one would add; a step ends with "
             "an optimiser's step() or with zero_grad()");
  const std::vector<std::shared_ptr<TensorState>> living = made_->Living();
  for (const std::shared_ptr<TensorState>& value : living) {
    const long owners = std::count_if(returned.begin(), returned.end(), [&](const Tensor& tensor) {
      return tensor.value() == value;
    });
    if (owners > 0 && owners + 1 == value.use_count()) continue;  // and `living`
    const At line = value->lazy() ? value->lazy_graph->LineOf(value->node) : at_;
    Refuse(line,
           "a tensor that the step makes here is kept beyond it, where it would be only that of "
           "one repetition; return it, or assign() to one that was there before");
  }
}

// Another tensor with the same value, made in the step: one that was there before has a value after
// it too.
void RepeatStep::Alias(Tensor& tensor) const {
  const NodeBuilder rec(at_);
  tensor = Tensor::FromNode(rec, tensor.NodeIn(rec));
}

std::vector<Tensor> RepeatStep::Finish(std::vector<Tensor> returned) {
  for (Tensor& tensor : returned)
    if (tensor.empty()) Refuse(at_, "the step returns an empty tensor");
  CheckNothingIsLeft(returned);
  std::vector<std::shared_ptr<TensorState>> fetch = Living(fetch_), values = Living(values_);
  for (Tensor& tensor : returned) {
    const std::shared_ptr<TensorState> before = tensor.value();
    if (!IsMade(*before) || !before->lazy()) {
      Alias(tensor);
      if (std::find(fetch.begin(), fetch.end(), before) != fetch.end())
        fetch.push_back(tensor.value());
    }
    repetition_.stacked.insert(tensor.value().get());
  }
  std::vector<std::shared_ptr<TensorState>> wanted = LazyValues(std::move(values), fetch);
  for (const Tensor& tensor : returned)
    if (std::find(wanted.begin(), wanted.end(), tensor.value()) == wanted.end())
      wanted.push_back(tensor.value());
  Leave();
  const At at = realized_at_.value_or(at_);
  if (!wanted.empty()) {
    Realization(std::move(wanted), fetch, at, /*keep_pins=*/false, &repetition_).Realize();
  }
  finished_ = true;
  ThreadState::Get().pending.clear();
  LazyGraph::Renew(kLazyGraphNodesMax);
  return returned;
}

}  // namespace outboard::internal
