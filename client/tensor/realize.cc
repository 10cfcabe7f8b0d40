#include <algorithm>

#include "absl/strings/str_cat.h"
#include "client/tensor/operands.h"
#include "client/tensor/recorder.h"
#include "client/tensor/tensor.h"
#include "client/tensor/thread_state.h"
#include "compiler/ir/build.h"
#include "compiler/ir/limits.h"
#include "compiler/rewrite/bind.h"

namespace outboard {
namespace internal {
namespace {

// Two parameters that start alike are one node until they are buffers, and a graph that starts from
// constants is not the graph of the later steps: so state is realised before its first use. An
// assign to what has no gradient may wait.
bool MustBeRealised(const Value& value) {
  return value.lazy() && value.is_state && (value.requires_grad || value.replaced == nullptr);
}

// The node of a lazy value, imported into `recording`.
const UOp* LazyNode(Value& value, const std::shared_ptr<Recording>& recording, const At& at) {
  if (value.recording != recording) {
    const UOp* const node = recording->Import(*value.recording, value.node, at);
    value.SetLazy(recording, node);
  }
  return value.node;
}

}  // namespace

ThreadState& ThreadState::Get() {
  thread_local ThreadState state;
  return state;
}

std::vector<std::shared_ptr<Value>> ThreadState::LiveState() {
  std::vector<std::shared_ptr<Value>> live;
  for (const std::weak_ptr<Value>& known : state)
    if (std::shared_ptr<Value> value = known.lock(); value != nullptr)
      live.push_back(std::move(value));
  state.assign(live.begin(), live.end());
  return live;
}

void ThreadState::AddState(const std::shared_ptr<Value>& value) {
  if (value->is_state) return;
  value->is_state = true;
  // Forgetting the dead now and then keeps the list in proportion to the living.
  if (state.size() >= 2 * live_state_count + 64) live_state_count = LiveState().size();
  state.push_back(value);
}

void ThreadState::AddPending(const std::shared_ptr<Value>& value) {
  for (const std::weak_ptr<Value>& known : pending)
    if (known.lock() == value) return;
  pending.push_back(value);
}

std::shared_ptr<Storage> Upload(DType dtype, const std::vector<int64_t>& dims,
                                std::string_view bytes, const At& at) {
  absl::StatusOr<std::shared_ptr<Engine>> engine = CurrentEngine();
  ThrowIfError(engine.status(), at);
  auto storage = std::make_shared<Storage>();
  storage->handle = (*engine)->NewHandle();
  storage->dtype = dtype;
  storage->dims = dims;
  ThrowIfError((*engine)->Put(storage->handle, dtype, dims, bytes), at);
  storage->engine = *std::move(engine);
  return storage;
}

const UOp* NodeOfValue(const std::shared_ptr<Value>& value,
                       const std::shared_ptr<Recording>& recording, const At& at) {
  if (MustBeRealised(*value)) RealizeValues({value}, {}, at, /*keep_pins=*/true);
  return value->lazy() ? LazyNode(*value, recording, at) : recording->NodeOf(value->storage, at);
}

namespace {

// The lazy ones of `values`, `fetch`, the pending assigns and new state, each once, in this order.
std::vector<std::shared_ptr<Value>> Wanted(std::vector<std::shared_ptr<Value>> values,
                                           const std::vector<std::shared_ptr<Value>>& fetch) {
  values.insert(values.end(), fetch.begin(), fetch.end());
  for (const std::weak_ptr<Value>& pending : ThreadState::Get().pending)
    if (std::shared_ptr<Value> value = pending.lock()) values.push_back(std::move(value));
  for (std::shared_ptr<Value>& state : ThreadState::Get().LiveState())
    if (MustBeRealised(*state)) values.push_back(std::move(state));
  std::vector<std::shared_ptr<Value>> wanted;
  absl::flat_hash_map<const Value*, bool> seen;
  for (std::shared_ptr<Value>& value : values)
    if (value->lazy() && seen.emplace(value.get(), true).second) wanted.push_back(std::move(value));
  return wanted;
}

std::string ShapeOf(const Storage& storage) {
  return DimsToString(Shape(storage.dims.begin(), storage.dims.end()));
}

// One realize. Until Settle nothing but pins and places changes, so that an error leaves every Value
// as it was. A Send that fails is the session's end: what the Values name then is lost with all the
// rest of it, and reading them says so.
class Realization {
 public:
  Realization(std::vector<std::shared_ptr<Value>> values,
              const std::vector<std::shared_ptr<Value>>& fetch, const At& at, bool keep_pins)
      : at_(at),
        keep_pins_(keep_pins),
        recording_(Recording::Current()),
        values_(std::move(values)),
        fetch_(fetch) {}

  void Run() {
    Gather();
    if (roots_.empty()) {
      Settle();
      return;
    }
    const UOp* const sink = MakeSink();
    const EncodedRun& encoded = recording_->Encode(sink, at_);
    absl::StatusOr<std::shared_ptr<Engine>> engine = CurrentEngine();
    ThrowIfError(engine.status(), at_);
    engine_ = *std::move(engine);
    for (const int64_t place : encoded.places) {
      inputs_.push_back(recording_->StorageAt(place));
      request_.inputs.push_back(inputs_.back()->handle);
      if (inputs_.back()->engine != engine_)
        throw Error(
            absl::FailedPreconditionError(absl::StrCat(
                "a tensor of shape ", ShapeOf(*inputs_.back()),
                " that is needed here belongs to a session that has ended, or to another engine")),
            at_);
    }
    const std::vector<Binding> bindings = recording_->BindingsOf(bound_);
    for (size_t slot = 0; slot < encoded.variables.size(); ++slot)
      request_.bindings.push_back({static_cast<uint32_t>(slot), ValueOf(encoded.variables[slot])});
    request_.graph_id = encoded.id;
    request_.graph = encoded.bytes;
    lines_ = encoded.lines;
    for (const UOp* root : roots_) {
      auto storage = std::make_shared<Storage>();
      storage->engine = engine_;
      storage->handle = engine_->NewHandle();
      storage->dtype = root->dtype;
      absl::StatusOr<std::vector<int64_t>> dims = DimsAt(root->shape, bindings);
      ThrowIfError(dims.status(), at_);
      storage->dims = *std::move(dims);
      request_.outputs.push_back(storage->handle);
      results_.push_back(std::move(storage));
    }
    Settle();
    Send();
  }

 private:
  // Gives every wanted value a root of its own: what is one node now may be assigned to separately
  // later. A value that is an input already takes the input's buffer, unless it is state.
  void Gather() {
    for (const std::shared_ptr<Value>& value : values_) {
      const UOp* const node = LazyNode(*value, recording_, at_);
      Bind(value->bound);
      const bool input = node->op == Op::kBuffer && !value->is_state;
      place_.push_back(input ? kInput : static_cast<int>(roots_.size()));
      if (input) continue;
      __int128 bytes = ByteWidth(node->dtype);
      for (const Dim& dim : node->shape) bytes *= dim.max();
      if (bytes > limits::kStoredBytesMax)
        throw Error(absl::ResourceExhaustedError(absl::StrCat(
                        "a result of shape ", DimsToString(node->shape), " is over the limit of ",
                        limits::kStoredBytesMax, " stored bytes")),
                    at_);
      roots_.push_back(node);
    }
  }

  // One Run has one value for each variable.
  void Bind(const std::vector<BoundVariable>& bound) {
    const Recorder rec(at_);
    rec.Bind(bound_);
    rec.Bind(bound);
    bound_ = rec.bound();
  }

  int64_t ValueOf(const Variable& variable) const {
    for (const BoundVariable& bound : bound_)
      if (bound.variable == variable) return bound.value;
    throw Error(absl::InternalError(absl::StrCat("variable ", variable.name(), " is not bound")),
                at_);
  }

  const UOp* MakeSink() {
    absl::StatusOr<const UOp*> sink = recording_->graph().Make(Op::kSink, DType::kVoid, roots_);
    ThrowIfError(sink.status(), at_);
    return *sink;
  }

  // Turns the values into realised ones, then finds what they replaced and whether anybody else can
  // read it.
  void Settle() {
    std::vector<std::pair<std::shared_ptr<Storage>, std::shared_ptr<Storage>>> replaced;
    for (size_t i = 0; i < values_.size(); ++i) {
      Value& value = *values_[i];
      const std::shared_ptr<Storage> result =
          place_[i] == kInput ? recording_->StorageAt(value.node->arg[0]) : results_[place_[i]];
      value.SetStorage(result);
      if (value.replaced != nullptr)
        replaced.emplace_back(std::move(value.replaced), place_[i] == kInput ? nullptr : result);
      value.replaced = nullptr;
    }
    if (!keep_pins_) recording_->Unpin();
    // The place goes on first: a storage that was not an input dies with `replaced`.
    for (auto& [old, result] : replaced) {
      const bool input = std::find(inputs_.begin(), inputs_.end(), old) != inputs_.end();
      const long owners = input ? 2 : 1;
      if (old.use_count() == owners && result != nullptr && result->place < 0)
        recording_->MovePlace(*old, result);
    }
    replaced.clear();
    for (size_t i = 0; i < inputs_.size(); ++i)
      if (inputs_[i].use_count() == 1) request_.donate.push_back(static_cast<uint32_t>(i));
  }

  void Send() {
    for (const std::shared_ptr<Value>& value : fetch_) {
      const auto found = std::find(results_.begin(), results_.end(), value->storage);
      if (found == results_.end()) continue;
      const auto index = static_cast<uint32_t>(found - results_.begin());
      if (std::find(request_.fetch.begin(), request_.fetch.end(), index) == request_.fetch.end())
        request_.fetch.push_back(index);
    }
    absl::StatusOr<uint64_t> seq = engine_->Run(request_);
    ThrowIfError(seq.status(), at_);
    engine_->provenance().Remember(*seq, at_, lines_);
    for (const uint32_t index : request_.donate) inputs_[index]->handle = 0;
    for (const uint32_t index : request_.fetch) Expect(*results_[index], *seq, index);
  }

  static constexpr int kInput = -1;  // the value is a buffer that exists

  const At at_;
  const bool keep_pins_;
  const std::shared_ptr<Recording> recording_;
  const std::vector<std::shared_ptr<Value>> values_;
  const std::vector<std::shared_ptr<Value>>& fetch_;
  std::vector<int> place_;  // of each value: its root, or kInput
  std::vector<const UOp*> roots_;
  std::vector<BoundVariable> bound_;  // of all values
  std::shared_ptr<Engine> engine_;
  std::vector<std::shared_ptr<Storage>> inputs_, results_;
  transport::RunRequest request_;
  std::shared_ptr<const Lines> lines_;
};

}  // namespace

void RealizeValues(std::vector<std::shared_ptr<Value>> values,
                   const std::vector<std::shared_ptr<Value>>& fetch, const At& at, bool keep_pins) {
  const std::vector<std::shared_ptr<Value>> wanted = Wanted(std::move(values), fetch);
  if (!wanted.empty()) Realization(wanted, fetch, at, keep_pins).Run();
  ThreadState::Get().pending.clear();
  std::vector<std::shared_ptr<Storage>> asked;
  for (const std::shared_ptr<Value>& value : fetch) asked.push_back(value->storage);
  Ask(asked, at);
  Recording::Renew(kRecordingNodesMax);
}

}  // namespace internal

namespace {

std::shared_ptr<internal::Value> ValueOf(const Tensor& tensor, const At& at) {
  if (tensor.empty()) throw Error(absl::FailedPreconditionError("the tensor is empty"), at);
  return tensor.value();
}

std::vector<std::shared_ptr<internal::Value>> ValuesOf(std::span<const Tensor> tensors,
                                                       const At& at) {
  std::vector<std::shared_ptr<internal::Value>> values;
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
  const internal::Recorder rec(arg.at());
  const std::shared_ptr<internal::Value> value = ValueOf(*this, arg.at());
  const Dims dims = shape(arg.at());
  const UOp* node;
  if (arg.is_tensor()) {
    if (arg.tensor().value_ == value_) return *this;
    node = arg.tensor().NodeIn(rec);
    if (node->shape != ShapeView(internal::ToShape(dims)))
      rec.Invalid(absl::StrCat("assign: a tensor of shape ", internal::DimsToString(node->shape),
                               " to one of ", internal::DimsToString(internal::ToShape(dims))));
    node = rec.Cast(node, value->dtype());
  } else {
    const UOp* const number = arg.kind() == Arg::Kind::kSize
                                  ? internal::NodeOfArg(rec, arg, value->dtype())
                                  : rec.Const(value->dtype(), arg.float_value());
    node = rec.Cast(rec.Full(number, internal::ToShape(dims)), value->dtype());
  }
  if (!value->lazy()) value->replaced = std::move(value->storage);
  value->SetLazy(rec.recording(), node);
  value->bound = rec.bound();
  internal::ThreadState::Get().AddPending(value);
  return *this;
}

bool Tensor::realized() const { return !empty() && !value_->lazy(); }

}  // namespace outboard
