#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/capture/step_observer.h"
#include "client/lazy/deferred_upload.h"
#include "client/lazy/items.h"
#include "client/lazy/node_builder.h"
#include "client/lazy/operands.h"
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
bool MustBeRealised(const TensorState& value) {
  return value.lazy() && value.is_state && (value.requires_grad || value.replaced == nullptr);
}

}  // namespace

namespace {

bool Tf32OfEnvironment() {
  const char* const text = std::getenv("ALLOW_TF32");
  return text != nullptr && std::atoi(text) != 0;
}

}  // namespace

ThreadState& ThreadState::Get() {
  thread_local ThreadState state{.allow_tf32 = Tf32OfEnvironment()};
  return state;
}

std::vector<std::shared_ptr<TensorState>> ThreadState::LiveState() {
  std::vector<std::shared_ptr<TensorState>> live;
  for (const std::weak_ptr<TensorState>& known : state)
    if (std::shared_ptr<TensorState> value = known.lock(); value != nullptr)
      live.push_back(std::move(value));
  state.assign(live.begin(), live.end());
  return live;
}

void ThreadState::AddState(const std::shared_ptr<TensorState>& value) {
  if (value->is_state) return;
  value->is_state = true;
  // Forgetting the dead now and then keeps the list in proportion to the living.
  if (state.size() >= 2 * live_state_count + 64) live_state_count = LiveState().size();
  state.push_back(value);
}

void ThreadState::AddPending(const std::shared_ptr<TensorState>& value) {
  for (const std::weak_ptr<TensorState>& known : pending)
    if (known.lock() == value) return;
  pending.push_back(value);
}

namespace {
void Append(std::vector<std::weak_ptr<TensorState>>& values,
            const std::shared_ptr<TensorState>& value) {
  if (values.size() == values.capacity())
    std::erase_if(values, [](const std::weak_ptr<TensorState>& known) { return known.expired(); });
  values.push_back(value);
}
}  // namespace

void ThreadState::AddGraded(const std::shared_ptr<TensorState>& value) { Append(graded, value); }
void ThreadState::AddDifferentiated(const std::shared_ptr<TensorState>& value) {
  Append(differentiated, value);
}

std::shared_ptr<CloudBuffer> Upload(DType dtype, const std::vector<int64_t>& dims,
                                    std::string_view bytes, const At& at) {
  absl::StatusOr<std::shared_ptr<Session>> session = CurrentSession();
  ThrowIfError(session.status(), at);
  auto storage = std::make_shared<CloudBuffer>();
  storage->handle = (*session)->NewHandle();
  storage->dtype = dtype;
  storage->dims = dims;
  ThrowIfError((*session)->Put(storage->handle, dtype, dims, bytes), at);
  storage->session = *std::move(session);
  return storage;
}

namespace {
void CheckNotStale(const TensorState& value, const At& at) {
  if (!value.is_stale) return;
  throw Error(absl::FailedPreconditionError(absl::StrCat(
                  "a tensor of shape ", DimsToString(ToShape(value.dims())),
                  " that a captured step made and did not realise has the value of the recording, "
                  "and the step was sent again since; return it from the step, realize() it there, "
                  "or zero_grad() where it is a gradient")),
              at);
}
}  // namespace

const UOp* NodeOfValue(const std::shared_ptr<TensorState>& value,
                       const std::shared_ptr<LazyGraph>& lazy_graph, const At& at) {
  FollowWhole(*value);
  CheckNotStale(*value, at);
  StepObserver* const step = StepObserver::Current();
  if (step != nullptr) step->OnRead(value, at);
  if (MustBeRealised(*value)) {
    if (step != nullptr) step->OnState(*value, at);
    RealizeValues({value}, {}, at, /*keep_pins=*/true);
  }
  return value->lazy() ? LazyNode(*value, lazy_graph, at) : lazy_graph->NodeOf(value->storage, at);
}

void AssignNode(const std::shared_ptr<TensorState>& value, const NodeBuilder& rec,
                const UOp* node) {
  if (StepObserver* const step = StepObserver::Current(); step != nullptr)
    step->OnAssign(value, rec.at());
  if (!value->lazy()) value->replaced = value->TakeStorage();
  value->SetLazy(rec.lazy_graph(), node);
  value->is_stale = false;
  value->bound = rec.bound();
  ThreadState::Get().AddPending(value);
}

std::vector<std::shared_ptr<TensorState>> LazyValues(
    std::vector<std::shared_ptr<TensorState>> values,
    const std::vector<std::shared_ptr<TensorState>>& fetch) {
  values.insert(values.end(), fetch.begin(), fetch.end());
  for (const std::weak_ptr<TensorState>& pending : ThreadState::Get().pending)
    if (std::shared_ptr<TensorState> value = pending.lock()) values.push_back(std::move(value));
  for (std::shared_ptr<TensorState>& state : ThreadState::Get().LiveState())
    if (MustBeRealised(*state)) values.push_back(std::move(state));
  std::vector<std::shared_ptr<TensorState>> wanted;
  absl::flat_hash_map<const TensorState*, bool> seen;
  for (std::shared_ptr<TensorState>& value : values)
    if (value->lazy() && seen.emplace(value.get(), true).second) wanted.push_back(std::move(value));
  return wanted;
}

namespace {

using Values = std::vector<std::shared_ptr<TensorState>>;

// A lazy value of another scope than this thread's.
const LazyGraph* ForeignGraph(const Values& values) {
  const std::shared_ptr<LazyGraph>& here = LazyGraph::Current();
  for (const std::shared_ptr<TensorState>& value : values)
    if (value->lazy() && value->lazy_graph != here && !value->lazy_graph->SharesScope(*here))
      return value->lazy_graph.get();
  return nullptr;
}

Values LazyOf(const LazyGraph& scope, const Values& values) {
  Values found;
  for (const std::shared_ptr<TensorState>& value : values)
    if (value->lazy() && value->lazy_graph->SharesScope(scope)) found.push_back(value);
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
    for (const std::shared_ptr<TensorState>& value : *list) {
      FollowWhole(*value);
      CheckNotStale(*value, at);
    }
  const trace::Scope scope(trace::Trace::OfProcess(), "realize");
  StepObserver* const step = StepObserver::Current();
  if (step != nullptr && step->OnRealize(values, fetch, at)) return;
  RealizeForeign(values, fetch, at, keep_pins);
  std::vector<std::shared_ptr<CloudBuffer>>
      here;  // what its owner may change as soon as it is realised
  for (const std::shared_ptr<TensorState>& value : values)
    if (!value->lazy() && value->storage != nullptr && value->storage->deferred != nullptr)
      here.push_back(value->storage);
  Define(here, at);
  const std::vector<std::shared_ptr<TensorState>> wanted = LazyValues(std::move(values), fetch);
  if (!wanted.empty()) Realization(wanted, fetch, at, keep_pins).Run();
  ThreadState::Get().pending.clear();
  std::vector<std::shared_ptr<CloudBuffer>> asked;
  for (const std::shared_ptr<TensorState>& value : fetch) asked.push_back(value->storage);
  Ask(asked, at);
  LazyGraph::Renew(kLazyGraphNodesMax);
}

}  // namespace internal

namespace {

std::shared_ptr<internal::TensorState> ValueOf(const Tensor& tensor, const At& at) {
  if (tensor.empty()) throw Error(absl::FailedPreconditionError("the tensor is empty"), at);
  return tensor.value();
}

// The shape of `value` in the graph of `rec`, also if it is of variables.
Shape ShapeIn(const internal::NodeBuilder& rec, internal::TensorState& value) {
  if (value.lazy()) {
    const UOp* const node = internal::LazyNode(value, rec.lazy_graph(), rec.at());
    rec.Bind(value.bound);
    return Shape(node->shape.begin(), node->shape.end());
  }
  Shape shape;
  const internal::CloudBuffer& storage = *value.storage;
  if (!storage.is_symbolic) return internal::ToShape(storage.dims);
  for (const SymInt& size : storage.sizes) shape.push_back(rec.DimOf(size));
  return shape;
}

std::vector<std::shared_ptr<internal::TensorState>> ValuesOf(std::span<const Tensor> tensors,
                                                             const At& at) {
  std::vector<std::shared_ptr<internal::TensorState>> values;
  for (const Tensor& tensor : tensors) values.push_back(ValueOf(tensor, at));
  return values;
}

}  // namespace

void realize(std::span<const Tensor> tensors, std::span<const Tensor> fetch, At at) {
  internal::RealizeValues(ValuesOf(tensors, at), ValuesOf(fetch, at), at);
}

Tensor& Tensor::realize(At at) {
  internal::RealizeValues({ValueOf(*this, at)}, {}, at);
  return *this;
}

Tensor& Tensor::assign(const Arg& arg) {
  const internal::NodeBuilder rec(arg.at());
  const std::shared_ptr<internal::TensorState> value = ValueOf(*this, arg.at());
  ++value->writes;
  const std::shared_ptr<internal::PartOf> part = value->part;
  // An assign to the view too: a recorded step gives it its new value each time.
  const auto assigned_to_whole = [&] {
    part->written = part->whole.value_->node;
    part->writes = part->whole.value_->writes;
    internal::AssignNode(value, rec, part->read(part->whole).NodeIn(rec));
  };
  if (part != nullptr && !part->indices.empty()) {
    set_items(part->whole, part->indices, arg);
    assigned_to_whole();
    return *this;
  }
  const Shape shape = ShapeIn(rec, *value);
  const UOp* node;
  if (arg.is_tensor()) {
    if (arg.tensor().value_ == value_) return *this;
    node = arg.tensor().NodeIn(rec);
    if (node->shape != ShapeView(shape))
      rec.Invalid(absl::StrCat("assign: a tensor of shape ", internal::DimsToString(node->shape),
                               " to one of ", internal::DimsToString(shape)));
    node = rec.Cast(node, value->dtype());
  } else {
    const bool whole =
        arg.kind() == Arg::Kind::kSize || (arg.kind() == Arg::Kind::kInt && IsInt(value->dtype()));
    const UOp* const number = whole ? internal::NodeOfArg(rec, arg, value->dtype())
                                    : rec.Const(value->dtype(), arg.float_value());
    node = rec.Cast(rec.Full(number, shape), value->dtype());
  }
  if (part != nullptr) {
    part->whole.assign(part->with(part->whole, FromNode(rec, node)));
    assigned_to_whole();
    return *this;
  }
  internal::AssignNode(value, rec, node);
  return *this;
}

Tensor& Tensor::replace(const Tensor& other, At at) {
  const internal::NodeBuilder rec(at);
  const std::shared_ptr<internal::TensorState> value = ValueOf(*this, at);
  if (other.value_ == value_) return *this;
  const UOp* const node = other.NodeIn(rec);
  const Shape shape = ShapeIn(rec, *value);
  if (node->shape != ShapeView(shape))
    rec.Invalid(absl::StrCat("replace: a tensor of shape ", internal::DimsToString(node->shape),
                             " for one of ", internal::DimsToString(shape)),
                Mistake::kCheck);
  value->part = nullptr;  // it has another value now, not that of a place in the whole
  internal::AssignNode(value, rec, node);
  return *this;
}

bool Tensor::realized() const { return !empty() && !value_->lazy(); }

}  // namespace outboard
