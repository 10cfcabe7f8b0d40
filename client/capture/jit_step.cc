#include "client/capture/jit_step.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/lazy/node_builder.h"
#include "client/lazy/realization.h"
#include "client/lazy/realize.h"
#include "client/lazy/sym_expression.h"
#include "client/lazy/thread_state.h"
#include "client/trace/trace.h"

namespace outboard::internal {
namespace {

[[noreturn]] void Fail(const At& at, const std::string& message) {
  throw Error(absl::FailedPreconditionError(absl::StrCat("captured step: ", message)), at);
}

std::string Described(DType dtype, const std::vector<int64_t>& dims) {
  return absl::StrCat(std::string(Name(dtype)), DimsToString(ToShape(dims)));
}

// f32[2, n = 3]; of an expression only the value.
std::string Described(DType dtype, const std::vector<SymInt>& sizes) {
  std::vector<std::string> parts;
  for (const SymInt& size : sizes) {
    const SymExpression* const e = size.expression();
    if (e == nullptr)
      parts.push_back(absl::StrCat(size.value()));
    else if (e->variable)
      parts.push_back(absl::StrCat(e->variable->variable.name(), " = ", size.value()));
    else
      parts.push_back(absl::StrCat("a size of variables, ", size.value()));
  }
  return absl::StrCat(std::string(Name(dtype)), "[", absl::StrJoin(parts, ", "), "]");
}

std::string Described(const CloudBuffer& buffer) {
  return buffer.sizes.empty() ? Described(buffer.dtype, buffer.dims)
                              : Described(buffer.dtype, buffer.sizes);
}

std::vector<std::shared_ptr<TensorState>> ValuesOf(const std::vector<Tensor>& tensors,
                                                   const At& at) {
  std::vector<std::shared_ptr<TensorState>> values;
  for (const Tensor& tensor : tensors) {
    if (tensor.empty()) Fail(at, "an empty tensor");
    values.push_back(tensor.value());
  }
  return values;
}

void CheckDistinct(const std::vector<std::shared_ptr<TensorState>>& values, const At& at) {
  for (size_t i = 0; i < values.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      if (values[i]->storage == values[j]->storage)
        ThrowInvalid(at, absl::StrCat("captured step: duplicate inputs, argument ", j,
                                      " and argument ", i, " are one tensor"));
}

}  // namespace

// ---- recording ----------------------------------------------------------------------------------

JitStep::JitStep(const std::vector<Tensor>& arguments, const std::vector<SymInt>& sizes,
                 const At& at)
    : at_(at) {
  if (Current() != nullptr) Current()->Refuse(at, "a step is captured within the step");
  session_ = RandomState(at).random_session;
  const std::vector<std::shared_ptr<TensorState>> values = ValuesOf(arguments, at);
  RealizeValues(values, {}, at);
  CheckDistinct(values, at);
  for (size_t i = 0; i < values.size(); ++i) {
    const CloudBuffer& storage = *values[i]->storage;
    arguments_.push_back({storage.dtype, storage.dims, storage.sizes});
    argument_values_.push_back(values[i]);
    Remember(values[i]->storage, {Source::Kind::kArgument, i});
  }
  bound_ = BoundIn(arguments, sizes, at);
  for (const std::shared_ptr<TensorState>& value : values) {
    if (value->storage->sizes.empty()) continue;
    value->storage->is_symbolic = true;
    symbolic_.push_back(value->storage);
  }
  // The step fits for all values that its own parts of tensors allow.
  if (LazyGraph::Current()->is_narrowed()) LazyGraph::Exchange(nullptr);
  Enter();
}

void JitStep::ShowNumbers() {
  for (const std::shared_ptr<CloudBuffer>& buffer : symbolic_) buffer->is_symbolic = false;
  symbolic_.clear();
}

void JitStep::Refuse(const At& at, const std::string& what) const { Fail(at, what); }

void JitStep::Remember(const std::shared_ptr<CloudBuffer>& storage, Source source) {
  seen_.push_back(storage);
  sources_.insert_or_assign(storage.get(), source);
}

void JitStep::AddReader(const std::shared_ptr<TensorState>& value) {
  std::vector<std::weak_ptr<TensorState>>& readers = readers_[value->storage.get()];
  for (const std::weak_ptr<TensorState>& known : readers)
    if (known.lock() == value) return;
  seen_.push_back(value->storage);
  readers.push_back(value);
}

void JitStep::OnRead(const std::shared_ptr<TensorState>& value, const At& at) {
  if (IsMade(*value) || (value->lazy() && assigned_.contains(value.get()))) return;
  if (value->lazy()) {
    Leave();
    Realization({value}, {}, at, /*keep_pins=*/true).Realize();
    Enter();
  }
  AddReader(value);
}

void JitStep::OnAssign(const std::shared_ptr<TensorState>& value, const At& at) {
  if (!IsMade(*value)) assigned_.emplace(value.get(), value);
}

bool JitStep::OnRealize(const std::vector<std::shared_ptr<TensorState>>& values,
                        const std::vector<std::shared_ptr<TensorState>>& fetch, const At& at) {
  return false;
}

// What the step itself made, other than by a Run.
bool JitStep::Retains(const CloudBuffer& input) const {
  const auto known = sources_.find(&input);
  if (known == sources_.end()) return !readers_.contains(&input);
  return known->second.kind == Source::Kind::kConstant;
}

JitStep::Source JitStep::SourceOf(const std::shared_ptr<CloudBuffer>& storage) {
  if (const auto known = sources_.find(storage.get()); known != sources_.end())
    return known->second;
  Source source;
  if (readers_.contains(storage.get())) {
    source = {Source::Kind::kState, states_.size()};
    states_.push_back({storage.get(), {}, storage->dtype, storage->dims});
  } else {
    source = {Source::Kind::kConstant, constants_.size()};
    constants_.push_back(storage);
  }
  Remember(storage, source);
  return source;
}

void JitStep::OnRun(const SentRun& sent, const At& at) {
  Run run;
  run.request = sent.request;
  for (const std::shared_ptr<CloudBuffer>& input : sent.inputs)
    run.inputs.push_back(SourceOf(input));
  run.first_result = results_.size();
  run.variables = sent.encoded.variables;
  run.lines = sent.encoded.lines;
  for (size_t i = 0; i < sent.results.size(); ++i) {
    const std::shared_ptr<CloudBuffer>& storage = sent.results[i];
    Result result;
    result.recorded = storage;
    result.dtype = storage->dtype;
    result.dims = storage->dims;
    result.sizes = storage->sizes;
    Remember(storage, {Source::Kind::kResult, results_.size()});
    results_.push_back(std::move(result));
  }
  runs_.push_back(std::move(run));
}

std::vector<Tensor> JitStep::Finish(const std::vector<Tensor>& returned) {
  const std::vector<std::shared_ptr<TensorState>> values = ValuesOf(returned, at_);
  RealizeValues(values, {}, at_);
  Leave();
  ShowNumbers();
  FindMoves();
  if (runs_.empty() && moves_.empty()) Fail(at_, "there is nothing in it to be computed");
  for (const std::shared_ptr<TensorState>& value : values) {
    if (!IsMade(*value)) AddReader(value);
    returned_.push_back(SourceOf(value->storage));
  }
  for (const std::shared_ptr<TensorState>& value : made_->Living())
    if (value->lazy()) unfinished_.push_back(value);
  FindStates();
  FindOwners();
  FindLastReads();
  std::vector<Tensor> tensors;
  for (const std::shared_ptr<TensorState>& value : values) {
    auto alias = std::make_shared<TensorState>();  // no owner of the result
    alias->SetStorage(value->storage);
    tensors.push_back(Tensor::FromValue(std::move(alias)));
  }
  assigned_.clear();
  readers_.clear();
  sources_.clear();
  seen_.clear();
  return tensors;
}

void JitStep::FindStates() {
  const ThreadState& thread = ThreadState::Get();
  for (State& state : states_) {
    state.values = readers_[state.recorded];
    for (const std::weak_ptr<TensorState>& weak : state.values) {
      const std::shared_ptr<TensorState> value = weak.lock();
      state.is_random_key |= value != nullptr && value == thread.random_key;
      state.is_random_counter |= value != nullptr && value == thread.random_counter;
    }
  }
}

std::optional<size_t> JitStep::ArgumentOf(const TensorState* value) const {
  for (size_t i = 0; i < argument_values_.size(); ++i)
    if (argument_values_[i].lock().get() == value) return i;
  return std::nullopt;
}

void JitStep::FindOwners() {
  for (Run& run : runs_) {
    absl::flat_hash_map<const TensorState*, size_t> read_by;
    for (size_t i = 0; i < run.inputs.size(); ++i)
      if (run.inputs[i].kind == Source::Kind::kState)
        for (const std::weak_ptr<TensorState>& value : states_[run.inputs[i].index].values)
          read_by.emplace(value.lock().get(), i);
    const size_t end = run.first_result + run.request.outputs.size();
    for (size_t r = run.first_result; r < end; ++r) {
      Result& result = results_[r];
      const std::shared_ptr<CloudBuffer> storage = result.recorded.lock();
      for (TensorState* value = storage == nullptr ? nullptr : storage->first; value != nullptr;
           value = value->next) {
        const std::shared_ptr<TensorState> owner = value->shared_from_this();
        if (const std::optional<size_t> argument = ArgumentOf(value))
          result.arguments.push_back(*argument);
        else if (owner == ThreadState::Get().random_counter)
          result.is_random_counter = true;
        else
          result.owners.push_back(owner);
        if (const auto input = read_by.find(value); input != read_by.end())
          result.replaces = input->second;
      }
    }
  }
}

void JitStep::FindMoves() {
  for (const auto& [pointer, weak] : assigned_) {
    const std::shared_ptr<TensorState> value = weak.lock();
    if (value == nullptr || value->lazy()) continue;
    const Source source = SourceOf(value->storage);
    if (source.kind != Source::Kind::kResult)
      moves_.push_back({weak, ArgumentOf(value.get()), source});
  }
}

void JitStep::FindLastReads() {
  absl::flat_hash_set<std::pair<Source::Kind, size_t>> later;
  for (const Move& move : moves_) later.emplace(move.from.kind, move.from.index);
  for (const Source& source : returned_) later.emplace(source.kind, source.index);
  for (auto run = runs_.rbegin(); run != runs_.rend(); ++run) {
    for (const Source& input : run->inputs)
      run->is_last.push_back(input.kind != Source::Kind::kConstant &&
                             !later.contains({input.kind, input.index}));
    for (const Source& input : run->inputs) later.emplace(input.kind, input.index);
  }
}

// ---- sending ------------------------------------------------------------------------------------

void JitStep::MarkStale() {
  for (const std::weak_ptr<TensorState>& weak : unfinished_)
    if (const std::shared_ptr<TensorState> value = weak.lock(); value != nullptr && value->lazy())
      value->is_stale = true;
  unfinished_.clear();
}

void JitStep::CheckArguments(const std::vector<Tensor>& arguments, const At& at) const {
  if (arguments.size() != arguments_.size())
    ThrowInvalid(at, absl::StrCat("captured step: ", arguments.size(), " tensors, recorded with ",
                                  arguments_.size()));
  for (size_t i = 0; i < arguments.size(); ++i) {
    const CloudBuffer& now = *arguments[i].value()->storage;
    const auto& [dtype, dims, sizes] = arguments_[i];
    const bool fits =
        sizes.empty() ? now.dims == dims : std::ranges::equal(now.sizes, sizes, &SameForm);
    if (now.dtype != dtype || !fits)
      ThrowInvalid(
          at,
          absl::StrCat("captured step: argument ", i, " is ", Described(now), ", recorded with ",
                       sizes.empty() ? Described(dtype, dims) : Described(dtype, sizes)));
  }
}

// The variables of the sizes, and of those arguments whose sizes were recorded with variables.
std::vector<BoundVariable> JitStep::BoundIn(const std::vector<Tensor>& arguments,
                                            const std::vector<SymInt>& sizes, const At& at) const {
  std::vector<BoundVariable> all, bound;
  const auto collect = [&](const SymInt& size) {
    const std::vector<BoundVariable> in = VariablesIn(size);
    all.insert(all.end(), in.begin(), in.end());
  };
  std::ranges::for_each(sizes, collect);
  for (size_t i = 0; i < arguments.size(); ++i)
    if (!arguments_[i].sizes.empty())
      std::ranges::for_each(arguments[i].value()->storage->sizes, collect);
  for (const BoundVariable& next : all) {
    const auto known = std::find_if(bound.begin(), bound.end(), [&](const BoundVariable& b) {
      return b.variable.name() == next.variable.name();
    });
    if (known == bound.end())
      bound.push_back(next);
    else if (known->variable != next.variable || known->value != next.value)
      ThrowInvalid(at, absl::StrCat("captured step: variable ", next.variable.name(),
                                    " is given twice, with ", known->value, " and ", next.value));
  }
  return bound;
}

void JitStep::RealizeInputs(const std::vector<Tensor>& arguments, const At& at) const {
  std::vector<std::shared_ptr<TensorState>> lazy;
  for (const Tensor& argument : arguments) {
    if (argument.empty()) Fail(at, "an empty tensor");
    if (argument.value()->lazy()) lazy.push_back(argument.value());
  }
  for (const State& state : states_)
    for (const std::weak_ptr<TensorState>& weak : state.values)
      if (std::shared_ptr<TensorState> value = weak.lock(); value != nullptr && value->lazy())
        lazy.push_back(std::move(value));
  if (!lazy.empty() || !ThreadState::Get().pending.empty()) RealizeValues(std::move(lazy), {}, at);
}

std::shared_ptr<CloudBuffer> JitStep::NowOf(const State& state, const At& at) const {
  if (state.is_random_key) return RandomState(at).random_key->storage;
  if (state.is_random_counter) return RandomState(at).random_counter->storage;
  std::shared_ptr<CloudBuffer> now;
  for (const std::weak_ptr<TensorState>& weak : state.values) {
    const std::shared_ptr<TensorState> value = weak.lock();
    if (value == nullptr)
      Fail(at,
           absl::StrCat("a tensor of shape ", DimsToString(ToShape(state.dims)),
                        " that the step read is gone; pass it as an argument, or assign() to it "
                        "instead of replacing it"));
    if (now != nullptr && now != value->storage)
      Fail(at, absl::StrCat("two tensors of shape ", DimsToString(ToShape(state.dims)),
                            " that were one when the step was recorded have other values now"));
    now = value->storage;
  }
  if (now->dtype != state.dtype || now->dims != state.dims)
    Fail(at, absl::StrCat("a tensor that the step reads is ", Described(now->dtype, now->dims),
                          ", recorded with ", Described(state.dtype, state.dims)));
  return now;
}

std::shared_ptr<CloudBuffer>& JitStep::BufferOf(const Source& source, Sending& sending) {
  switch (source.kind) {
    case Source::Kind::kArgument: return sending.arguments[source.index];
    case Source::Kind::kState: return sending.states[source.index];
    case Source::Kind::kResult: return sending.results[source.index];
    case Source::Kind::kConstant: break;
  }
  return constants_[source.index];
}

std::vector<Tensor> JitStep::Send(const std::vector<Tensor>& arguments,
                                  const std::vector<SymInt>& sizes, const At& at) {
  const trace::Scope scope(trace::Trace::OfProcess(), "captured step");
  if (Current() != nullptr) Current()->Refuse(at, "a captured step is called within the step");
  MarkStale();
  RealizeInputs(arguments, at);
  if (SessionIfConnected() != session_) Fail(at, "it was recorded in another session; reset() it");
  CheckArguments(arguments, at);
  Sending sending;
  sending.at = at;
  sending.bound = BoundIn(arguments, sizes, at);
  const auto by_name = [](const BoundVariable& a, const BoundVariable& b) {
    return a.variable == b.variable;
  };
  if (!std::is_permutation(sending.bound.begin(), sending.bound.end(), bound_.begin(), bound_.end(),
                           by_name))
    ThrowInvalid(at, "captured step: the variables are not those that it was recorded with");
  CheckRanges(sending);
  CheckDistinct(ValuesOf(arguments, at), at);
  for (const Tensor& argument : arguments) sending.arguments.push_back(argument.value()->storage);
  for (const State& state : states_) sending.states.push_back(NowOf(state, at));
  for (Run& run : runs_) SendRun(run, arguments, sending);
  for (const Move& move : moves_) {
    const std::shared_ptr<TensorState> to =
        move.argument ? arguments[*move.argument].value() : move.to.lock();
    if (to == nullptr) continue;
    to->SetStorage(BufferOf(move.from, sending));
    ++to->writes;
  }
  std::vector<Tensor> tensors;
  for (const Source& source : returned_) {
    auto value = std::make_shared<TensorState>();
    value->SetStorage(BufferOf(source, sending));
    tensors.push_back(Tensor::FromValue(std::move(value)));
  }
  return tensors;
}

// Before anything is sent: parts of tensors in the step may fit for some values only.
void JitStep::CheckRanges(const Sending& sending) const {
  for (const Run& run : runs_)
    for (const RangedVariable& range : run.variables)
      for (const auto& [variable, value] : sending.bound)
        if (variable == range.variable && !range.Holds(value))
          ThrowInvalid(sending.at,
                       absl::StrCat("captured step: variable ", variable.name(), " is bound to ",
                                    value, ", and the parts of tensors in the step fit for ",
                                    range.least, "..", range.most));
}

std::shared_ptr<CloudBuffer> JitStep::MakeResult(const Result& result,
                                                 const std::vector<BoundVariable>& bound) const {
  auto storage = std::make_shared<CloudBuffer>();
  storage->session = session_;
  storage->handle = session_->NewHandle();
  storage->dtype = result.dtype;
  storage->dims = result.dims;
  for (const SymInt& size : result.sizes) storage->sizes.push_back(Rebound(size, bound));
  for (size_t i = 0; i < storage->sizes.size(); ++i) storage->dims[i] = storage->sizes[i].value();
  return storage;
}

void JitStep::Own(const Result& result, const std::shared_ptr<CloudBuffer>& storage,
                  const std::vector<Tensor>& arguments, const At& at, uint32_t index,
                  std::vector<session::Rekept>& rekept) const {
  const auto assign = [&](TensorState& value) {
    value.SetStorage(storage);
    for (const uint64_t id : value.kept_ids) rekept.push_back({id, index});
    ++value.writes;
  };
  for (const size_t argument : result.arguments) assign(*arguments[argument].value());
  for (const std::weak_ptr<TensorState>& weak : result.owners)
    if (const std::shared_ptr<TensorState> owner = weak.lock(); owner != nullptr) assign(*owner);
  if (result.is_random_counter) RandomState(at).random_counter->SetStorage(storage);
}

void JitStep::SendRun(Run& run, const std::vector<Tensor>& arguments, Sending& sending) {
  std::vector<std::shared_ptr<CloudBuffer>> inputs;
  inputs.reserve(run.inputs.size());
  bool deferred = false;
  for (size_t i = 0; i < run.inputs.size(); ++i) {
    std::shared_ptr<CloudBuffer>& buffer = BufferOf(run.inputs[i], sending);
    if (run.is_last[i])
      inputs.push_back(std::move(buffer));
    else
      inputs.push_back(buffer);
    if (inputs.back()->session != session_)
      Fail(sending.at, "a tensor that it reads belongs to a session that has ended");
    deferred |= inputs.back()->deferred != nullptr;
  }
  if (deferred) Define(inputs, sending.at);

  session::RunRequest& request = run.request;
  for (size_t i = 0; i < inputs.size(); ++i) request.inputs[i] = inputs[i]->handle;
  std::vector<BoundVariable> bound;
  for (size_t slot = 0; slot < run.variables.size(); ++slot) {
    int64_t& value = request.bindings[slot].value;
    for (const BoundVariable& given : sending.bound)
      if (given.variable == run.variables[slot].variable) value = given.value;
    bound.push_back({run.variables[slot].variable, value});
  }
  // The last wait that may be cut short: after it the values name what the Run will have made.
  ThrowIfError(session_->AwaitWindow(), sending.at);
  request.rekept.clear();
  for (size_t i = 0; i < request.outputs.size(); ++i) {
    const Result& result = results_[run.first_result + i];
    std::shared_ptr<CloudBuffer> storage = MakeResult(result, bound);
    request.outputs[i] = storage->handle;
    Own(result, storage, arguments, sending.at, static_cast<uint32_t>(i), request.rekept);
    sending.results.push_back(std::move(storage));
  }
  for (size_t i = 0; i < request.outputs.size(); ++i) {
    const Result& result = results_[run.first_result + i];
    if (!result.replaces || inputs[*result.replaces].use_count() != 1) continue;
    if (const auto lazy_graph = inputs[*result.replaces]->lazy_graph.lock(); lazy_graph != nullptr)
      lazy_graph->MovePlace(*inputs[*result.replaces], sending.results[run.first_result + i]);
  }
  request.donate.clear();
  for (size_t i = 0; i < inputs.size(); ++i)
    if (inputs[i].use_count() == 1) request.donate.push_back(static_cast<uint32_t>(i));

  request.origin = OriginOf(sending.at, run.lines);
  const absl::StatusOr<uint64_t> seq = session_->Run(request);
  ThrowIfError(seq.status(), sending.at);
  for (const uint32_t index : request.donate) inputs[index]->handle = 0;
  for (const uint32_t index : request.fetch)
    Expect(*sending.results[run.first_result + index], *seq, index);
}

}  // namespace outboard::internal
