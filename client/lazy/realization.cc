#include "client/lazy/realization.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/lazy/node_builder.h"
#include "client/lazy/thread_state.h"
#include "client/ops/index/part_of.h"
#include "compiler/ir/accessors.h"
#include "compiler/ir/build.h"
#include "compiler/ir/limits.h"
#include "compiler/rewrite/bind.h"

namespace outboard::internal {
namespace {

bool DependsOn(const UOp* node, const LazyGraph& lazy_graph, const Variable& variable) {
  for (const Dim& dim : node->shape)
    if (!dim.is_const())
      for (const UOp* part : PostOrder(dim.expression()))
        if (part->op == Op::kVar && lazy_graph.VariableOf(part) == variable) return true;
  return false;
}

}  // namespace

const UOp* LazyNode(TensorState& state, const std::shared_ptr<LazyGraph>& lazy_graph,
                    const At& at) {
  if (state.lazy_graph != lazy_graph) {
    const UOp* const node = lazy_graph->Import(*state.lazy_graph, state.node, state.bound, at);
    state.SetLazy(lazy_graph, node);
  }
  return state.node;
}

Realization::Realization(std::vector<std::shared_ptr<TensorState>> values,
                         const std::vector<std::shared_ptr<TensorState>>& fetch, const At& at,
                         bool keep_pins, const Repetition* repetition)
    : at_(at),
      keep_pins_(keep_pins),
      repetition_(repetition),
      lazy_graph_(LazyGraph::Current()),
      values_(std::move(values)),
      fetch_(fetch) {}

void Realization::Realize() {
  Gather();
  if (roots_.empty()) {
    Settle();
    return;
  }
  const EncodedRun& encoded = lazy_graph_->Encode(MakeSink(), at_);
  encoded_ = &encoded;
  absl::StatusOr<std::shared_ptr<Session>> session = CurrentSession();
  ThrowIfError(session.status(), at_);
  session_ = *std::move(session);
  FindInputs(encoded);
  request_.graph_id = encoded.id;
  request_.graph = encoded.bytes;
  if (repeats()) Repeat(encoded);
  // After this Ctrl-C ends no wait any more: the values name what the Run will have made.
  ThrowIfError(session_->AwaitWindow(), at_);
  MakeResults();
  Settle();
  Send();
}

// Gives every wanted value a root of its own: what is one node now may be assigned to separately
// later. A value that is an input already takes the input's buffer, unless it is state, or another
// one in each repetition.
void Realization::Gather() {
  // All of them before any node is taken: an import may narrow a variable of the others.
  for (const std::shared_ptr<TensorState>& state : values_) LazyNode(*state, lazy_graph_, at_);
  for (const std::shared_ptr<TensorState>& state : values_) {
    const UOp* const node = LazyNode(*state, lazy_graph_, at_);
    Bind(state->bound);
    const bool input = node->op == Op::kBuffer && !state->is_state && repetition_ == nullptr;
    root_of_.push_back(input ? kInput : static_cast<int>(roots_.size()));
    if (input) continue;
    __int128 bytes = ByteWidth(node->dtype);
    for (const Dim& dim : node->shape) bytes *= dim.max();
    if (IsStacked(*state)) bytes *= repetition_->count;
    if (bytes > limits::kStoredBytesMax)
      throw Error(absl::ResourceExhaustedError(absl::StrCat(
                      "a result of shape ", DimsToString(node->shape), " is over the limit of ",
                      limits::kStoredBytesMax, " stored bytes")),
                  at_);
    roots_.push_back(Root(*state, node));
  }
}

// What is stacked has an axis more: made by the Run's repetitions, or, of one, by a reshape.
const UOp* Realization::Root(const TensorState& state, const UOp* node) const {
  if (!IsStacked(state)) return node;
  if (node->rank() >= limits::kRankMax)
    ThrowInvalid(at_, absl::StrCat("repeat: a value of rank ", node->rank(),
                                   " has no room for another axis; limit ", limits::kRankMax));
  if (repetition_->index && DependsOn(node, *lazy_graph_, repetition_->index->variable))
    ThrowInvalid(at_, absl::StrCat("repeat: the shape ", DimsToString(node->shape),
                                   " of what a step returns is another one in each step"));
  if (repeats()) return node;
  Shape dims(node->shape.begin(), node->shape.end());
  dims.insert(dims.begin(), Dim(1));
  std::vector<int64_t> arg;
  std::vector<const UOp*> src = {node};
  AppendDims(dims, arg, src);
  absl::StatusOr<const UOp*> row = lazy_graph_->graph().Make(Op::kReshape, node->dtype, src, arg);
  ThrowIfError(row.status(), at_);
  return *row;
}

// One Run has one value for each variable.
void Realization::Bind(const std::vector<BoundVariable>& bound) {
  const NodeBuilder build(at_);
  build.Bind(bound_);
  build.Bind(bound);
  bound_ = build.bound();
}

int64_t Realization::ValueOf(const RangedVariable& ranged) const {
  for (const BoundVariable& bound : bound_)
    if (bound.variable == ranged.variable && ranged.Holds(bound.value)) return bound.value;
  throw Error(absl::InternalError(absl::StrCat("variable ", ranged.variable.name(),
                                               " is not bound to a value of ", ranged.least, "..",
                                               ranged.most)),
              at_);
}

const UOp* Realization::MakeSink() {
  constexpr int64_t kOneCopy = 1;
  absl::StatusOr<const UOp*> sink = lazy_graph_->graph().Make(
      Op::kSink, DType::kVoid, roots_, SinkArg(kOneCopy, ThreadState::Get().allow_tf32));
  ThrowIfError(sink.status(), at_);
  return *sink;
}

void Realization::FindInputs(const EncodedRun& encoded) {
  for (const int64_t place : encoded.places) {
    inputs_.push_back(lazy_graph_->StorageAt(place));
    if (inputs_.back()->session != session_)
      throw Error(absl::FailedPreconditionError(absl::StrCat(
                      "a tensor of shape ", DimsToString(ToShape(inputs_.back()->dims)),
                      " that is needed here belongs to a session that has ended, or "
                      "to another session")),
                  at_);
  }
  Define(inputs_, at_);
  for (const std::shared_ptr<CloudBuffer>& input : inputs_)
    request_.inputs.push_back(input->handle);
  for (size_t slot = 0; slot < encoded.variables.size(); ++slot)
    request_.bindings.push_back({static_cast<int64_t>(slot), ValueOf(encoded.variables[slot])});
}

void Realization::MakeResults() {
  const std::vector<Binding> bindings = lazy_graph_->BindingsOf(bound_);
  const NodeBuilder build(at_);
  build.Bind(bound_);
  for (const UOp* root : roots_) {
    auto buffer = std::make_shared<CloudBuffer>();
    buffer->session = session_;
    buffer->handle = session_->NewHandle();
    buffer->dtype = root->dtype;
    absl::StatusOr<std::vector<int64_t>> dims = DimsAt(root->shape, bindings);
    ThrowIfError(dims.status(), at_);
    buffer->dims = *std::move(dims);
    if (!IsStatic(root->shape))
      for (const Dim& dim : root->shape) buffer->sizes.push_back(build.SizeOf(dim, *lazy_graph_));
    request_.outputs.push_back(buffer->handle);
    results_.push_back(std::move(buffer));
  }
  for (const uint32_t root : request_.stack) {
    CloudBuffer& result = *results_[root];
    result.dims.insert(result.dims.begin(), repetition_->count);
    if (!result.sizes.empty()) result.sizes.insert(result.sizes.begin(), repetition_->count);
  }
}

void Realization::Repeat(const EncodedRun& encoded) {
  request_.repeat = static_cast<uint32_t>(repetition_->count);
  for (size_t i = 0; i < values_.size(); ++i) {
    const TensorState& state = *values_[i];
    const auto root = static_cast<uint32_t>(root_of_[i]);
    if (IsStacked(state)) request_.stack.push_back(root);
    if (state.replaced == nullptr) continue;
    const auto input = std::find(inputs_.begin(), inputs_.end(), state.replaced);
    if (input != inputs_.end() && IsCarried(state, *input))
      request_.carry.push_back({root, static_cast<uint32_t>(input - inputs_.begin())});
  }
  for (size_t slot = 0; repetition_->index && slot < encoded.variables.size(); ++slot)
    if (encoded.variables[slot].variable == repetition_->index->variable) {
      const RangedVariable& range = encoded.variables[slot];
      const int64_t last = repetition_->index->value + repetition_->count - 1;
      if (!range.Holds(last))
        ThrowInvalid(at_, absl::StrCat("repeat: variable ", range.variable.name(), " goes to ",
                                       last, ", and the parts of tensors in the step fit for ",
                                       range.least, "..", range.most));
      if (request_.cursor)
        ThrowInvalid(at_, absl::StrCat("repeat: parts of tensors fit for some values of variable ",
                                       range.variable.name(),
                                       " only; give it a range for which they all do"));
      request_.cursor = {static_cast<uint32_t>(slot), 1};
    }
}

// Whether the next step reads in `input`, which `state` had, what this one has assigned to it.
bool Realization::IsCarried(const TensorState& state,
                            const std::shared_ptr<CloudBuffer>& input) const {
  const auto readers = repetition_->readers.find(input.get());
  if (readers == repetition_->readers.end() || !readers->second.contains(&state)) return false;
  if (readers->second.size() == 1) return true;
  throw Error(
      absl::FailedPreconditionError(absl::StrCat(
          "repeat: a tensor of shape ", DimsToString(ToShape(input->dims)),
          " is assigned in the step and read there through another tensor too, which was made "
          "from it before and keeps the old value; realize() that one before repeat()")),
      at_);
}

// Turns the values into realised ones, then finds what they replaced and whether anybody else can
// read it.
void Realization::Settle() {
  std::vector<std::pair<std::shared_ptr<CloudBuffer>, std::shared_ptr<CloudBuffer>>> replaced;
  for (size_t i = 0; i < values_.size(); ++i) {
    TensorState& state = *values_[i];
    const std::shared_ptr<CloudBuffer> result =
        root_of_[i] == kInput ? lazy_graph_->StorageAt(BufferOf(state.node).name())
                            : results_[root_of_[i]];
    state.SetStorage(result);
    if (root_of_[i] != kInput)
      for (const uint64_t id : state.kept_ids)
        request_.rekept.push_back({id, static_cast<uint32_t>(root_of_[i])});
    if (state.part != nullptr && state.part->IsOnlyReader()) state.part = nullptr;
    if (state.replaced != nullptr)
      replaced.emplace_back(std::move(state.replaced), root_of_[i] == kInput ? nullptr : result);
    state.replaced = nullptr;
  }
  if (!keep_pins_) lazy_graph_->Unpin();
  // The place goes on first: a storage that was not an input dies with `replaced`.
  for (auto& [old, result] : replaced) {
    const bool input = std::find(inputs_.begin(), inputs_.end(), old) != inputs_.end();
    const long owners = input ? 2 : 1;
    if (old.use_count() == owners && result != nullptr && result->place < 0)
      lazy_graph_->MovePlace(*old, result);
  }
  replaced.clear();
  const StepObserver* const step = StepObserver::Current();
  for (size_t i = 0; i < inputs_.size(); ++i)
    if (inputs_[i].use_count() == 1 && (step == nullptr || !step->Retains(*inputs_[i])))
      request_.donate.push_back(static_cast<uint32_t>(i));
}

void Realization::Send() {
  for (const std::shared_ptr<TensorState>& state : fetch_) {
    const auto found = std::find(results_.begin(), results_.end(), state->storage);
    if (found == results_.end()) continue;
    const auto index = static_cast<uint32_t>(found - results_.begin());
    if (std::find(request_.fetch.begin(), request_.fetch.end(), index) == request_.fetch.end())
      request_.fetch.push_back(index);
  }
  request_.origin = OriginOf(at_, encoded_->lines);
  absl::StatusOr<uint64_t> seq = session_->Run(request_);
  ThrowIfError(seq.status(), at_);
  for (const uint32_t index : request_.donate) inputs_[index]->handle = 0;
  for (const uint32_t index : request_.fetch) Expect(*results_[index], *seq, index);
  if (StepObserver* const step = StepObserver::Current(); step != nullptr)
    step->OnRun({request_, *encoded_, inputs_, results_, roots_}, at_);
}

}  // namespace outboard::internal
