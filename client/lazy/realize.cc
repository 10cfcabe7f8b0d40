#include "client/lazy/realize.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/capture/step_observer.h"
#include "client/lazy/deferred_upload.h"
#include "client/lazy/node_builder.h"
#include "client/lazy/realization.h"
#include "client/lazy/thread_state.h"
#include "client/ops/index/part_of.h"
#include "client/tensor/tensor.h"
#include "client/trace/trace.h"
#include "compiler/ir/build.h"
#include "compiler/ir/limits.h"
#include "compiler/rewrite/bind.h"

namespace outboard {
namespace internal {
namespace {

// Two parameters that start alike are one node until they are buffers, and a graph that starts from
// constants is not the graph of the later steps: so state is realised before its first use. An
// assign to what has no gradient may wait.
bool MustBeRealised(const TensorState& state) {
  return state.lazy() && state.is_state && (state.requires_grad || state.replaced == nullptr);
}

void CheckNotStale(const TensorState& state, const At& at) {
  if (!state.is_stale) return;
  throw Error(absl::FailedPreconditionError(absl::StrCat(
                  "a tensor of shape ", DimsToString(ToShape(state.dims())),
                  " that a captured step made and did not realise has the value of the recording, "
                  "and the step was sent again since; return it from the step, realize() it there, "
                  "or zero_grad() where it is a gradient")),
              at);
}

}  // namespace

const UOp* NodeOfValue(const std::shared_ptr<TensorState>& state,
                       const std::shared_ptr<LazyGraph>& lazy_graph, const At& at) {
  FollowWhole(*state);
  CheckNotStale(*state, at);
  StepObserver* const step = StepObserver::Current();
  if (step != nullptr) step->OnRead(state, at);
  if (MustBeRealised(*state)) {
    if (step != nullptr) step->OnState(*state, at);
    RealizeValues({state}, {}, at, /*keep_pins=*/true);
  }
  return state->lazy() ? LazyNode(*state, lazy_graph, at) : lazy_graph->NodeOf(state->storage, at);
}

std::vector<std::shared_ptr<TensorState>> LazyValues(
    std::vector<std::shared_ptr<TensorState>> values,
    const std::vector<std::shared_ptr<TensorState>>& fetch) {
  values.insert(values.end(), fetch.begin(), fetch.end());
  for (const std::weak_ptr<TensorState>& pending : ThreadState::Get().pending)
    if (std::shared_ptr<TensorState> state = pending.lock()) values.push_back(std::move(state));
  for (std::shared_ptr<TensorState>& state : ThreadState::Get().LiveState())
    if (MustBeRealised(*state)) values.push_back(std::move(state));
  std::vector<std::shared_ptr<TensorState>> wanted;
  absl::flat_hash_map<const TensorState*, bool> seen;
  for (std::shared_ptr<TensorState>& state : values)
    if (state->lazy() && seen.emplace(state.get(), true).second) wanted.push_back(std::move(state));
  return wanted;
}

namespace {

using Values = std::vector<std::shared_ptr<TensorState>>;

// A lazy value of another scope than this thread's.
const LazyGraph* ForeignGraph(const Values& values) {
  const std::shared_ptr<LazyGraph>& here = LazyGraph::Current();
  for (const std::shared_ptr<TensorState>& state : values)
    if (state->lazy() && state->lazy_graph != here && !state->lazy_graph->SharesScope(*here))
      return state->lazy_graph.get();
  return nullptr;
}

Values LazyOf(const LazyGraph& scope, const Values& values) {
  Values found;
  for (const std::shared_ptr<TensorState>& state : values)
    if (state->lazy() && state->lazy_graph->SharesScope(scope)) found.push_back(state);
  return found;
}

// Those that were made in other scopes are computed there, and lazy no more.
void RealizeForeign(const Values& values, const Values& fetch, const At& at, bool keep_pins) {
  for (;;) {
    const LazyGraph* scope = ForeignGraph(values);
    if (scope == nullptr) scope = ForeignGraph(fetch);
    if (scope == nullptr) return;
    const Values theirs = LazyOf(*scope, values), fetched = LazyOf(*scope, fetch);
    const SessionScope inside(scope->ScopeSession(at));
    RealizeValues(theirs, fetched, at, keep_pins);
  }
}

}  // namespace

void RealizeValues(std::vector<std::shared_ptr<TensorState>> values,
                   const std::vector<std::shared_ptr<TensorState>>& fetch, const At& given,
                   bool keep_pins) {
  const At at = CallSite::Or(given);
  for (const auto* list : {&std::as_const(values), &fetch})
    for (const std::shared_ptr<TensorState>& state : *list) {
      FollowWhole(*state);
      CheckNotStale(*state, at);
    }
  const trace::Scope scope(trace::Trace::OfProcess(), "realize");
  StepObserver* const step = StepObserver::Current();
  if (step != nullptr && step->OnRealize(values, fetch, at)) return;  // sent when the step is
  RealizeForeign(values, fetch, at, keep_pins);
  // Bytes that the program still owns are uploaded now: it may change them once this returns.
  std::vector<std::shared_ptr<CloudBuffer>> here;
  for (const std::shared_ptr<TensorState>& state : values)
    if (!state->lazy() && state->storage != nullptr && state->storage->deferred != nullptr)
      here.push_back(state->storage);
  Define(here, at);
  const std::vector<std::shared_ptr<TensorState>> wanted = LazyValues(std::move(values), fetch);
  if (!wanted.empty()) Realization(wanted, fetch, at, keep_pins).Realize();
  ThreadState::Get().pending.clear();
  // Values that no Run sends, since they were realised before, are fetched.
  std::vector<std::shared_ptr<CloudBuffer>> asked;
  for (const std::shared_ptr<TensorState>& state : fetch) asked.push_back(state->storage);
  Ask(asked, at);
  LazyGraph::Renew(kLazyGraphNodesMax);
}

}  // namespace internal

namespace {

std::vector<std::shared_ptr<internal::TensorState>> StatesOf(std::span<const Tensor> tensors,
                                                             const At& at) {
  std::vector<std::shared_ptr<internal::TensorState>> states;
  for (const Tensor& tensor : tensors) states.push_back(internal::StateOf(tensor, at));
  return states;
}

}  // namespace

void realize(std::span<const Tensor> tensors, std::span<const Tensor> fetch, At at) {
  internal::RealizeValues(StatesOf(tensors, at), StatesOf(fetch, at), at);
}

Tensor& Tensor::realize(At at) {
  internal::RealizeValues({internal::StateOf(*this, at)}, {}, at);
  return *this;
}

bool Tensor::realized() const { return !empty() && !value_->lazy(); }

}  // namespace outboard
