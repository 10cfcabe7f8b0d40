#include "client/lazy/lazy_graph.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "client/capture/step_observer.h"
#include "client/lazy/sym_expression.h"
#include "client/tensor/error.h"
#include "client/trace/trace.h"
#include "compiler/ir/accessors.h"
#include "compiler/ir/build.h"
#include "compiler/ir/encoding.h"
#include "compiler/ir/limits.h"
#include "compiler/rewrite/substitute.h"

namespace outboard::internal {
namespace {

// GRAPHS=FOLDER: each graph that is sent is a file there, for `outboard shard explain`. What cannot
// be written is left out: a program runs all the same.
void SaveGraph(const EncodedGraph& graph) {
  static const char* const folder = std::getenv("GRAPHS");
  if (folder == nullptr || *folder == '\0') return;
  std::ofstream file(absl::StrCat(folder, "/", graph.id.ToHex().substr(0, 16), ".graph"),
                     std::ios::binary);
  file << graph.bytes;
}

}  // namespace

// ---- storage and values -------------------------------------------------------------------------

CloudBuffer::~CloudBuffer() {
  if (session == nullptr) return;
  if (handle != 0) session->Release(handle);
}

TensorState::TensorState() : made_in(MadeValues::OfThread()) {
  if (made_in != nullptr) made_in->Add(this);
}

TensorState::~TensorState() {
  if (made_in != nullptr) made_in->Remove(this);
  Unlink();
}

DType TensorState::dtype() const { return lazy() ? node->dtype : storage->dtype; }

std::vector<int64_t> TensorState::dims() const {
  return lazy() ? StaticDims(node->shape) : storage->dims;
}

namespace {

void Append(TensorState& state, TensorState*& first, TensorState*& last) {
  state.previous = last;
  (last != nullptr ? last->next : first) = &state;
  last = &state;
}

void Remove(TensorState& state, TensorState*& first, TensorState*& last) {
  (state.previous != nullptr ? state.previous->next : first) = state.next;
  (state.next != nullptr ? state.next->previous : last) = state.previous;
  state.previous = state.next = nullptr;
}

}  // namespace

void TensorState::Unlink() {
  if (lazy_graph != nullptr)
    Remove(*this, lazy_graph->first_, lazy_graph->last_);
  else if (storage != nullptr)
    Remove(*this, storage->first, storage->last);
}

void TensorState::SetLazy(std::shared_ptr<LazyGraph> where, const UOp* what) {
  Unlink();
  storage = nullptr;
  lazy_graph = std::move(where);
  node = what;
  if (node == nullptr) bound.clear();
  if (lazy_graph != nullptr) Append(*this, lazy_graph->first_, lazy_graph->last_);
}

void TensorState::SetStorage(std::shared_ptr<CloudBuffer> what) {
  SetLazy(nullptr, nullptr);
  storage = std::move(what);
  if (storage != nullptr) Append(*this, storage->first, storage->last);
}

std::shared_ptr<CloudBuffer> TensorState::TakeStorage() {
  Unlink();
  return std::exchange(storage, nullptr);
}

void BecomeLazy(TensorState& state, const TensorState& other) {
  state.SetLazy(other.lazy_graph, other.node);
  state.bound = other.bound;
}

// ---- recording ----------------------------------------------------------------------------------

namespace {
std::shared_ptr<LazyGraph>& ThreadGraph() {
  thread_local std::shared_ptr<LazyGraph> lazy_graph;
  return lazy_graph;
}
}  // namespace

const std::shared_ptr<LazyGraph>& LazyGraph::Current() {
  std::shared_ptr<LazyGraph>& lazy_graph = ThreadGraph();
  if (lazy_graph == nullptr) lazy_graph = std::make_shared<LazyGraph>();
  return lazy_graph;
}

std::shared_ptr<LazyGraph> LazyGraph::Exchange(std::shared_ptr<LazyGraph> next) {
  return std::exchange(ThreadGraph(), std::move(next));
}

void LazyGraph::Renew(int64_t nodes_max) {
  const LazyGraph& now = *Current();
  if (now.graph_.node_count() - now.imported_ > nodes_max || now.variables_.size() > kVarsKeptMax)
    ThreadGraph() = std::make_shared<LazyGraph>();
}

std::shared_ptr<Session> LazyGraph::ScopeSession(const At& at) const {
  std::shared_ptr<Session> session = scope_.lock();
  const std::weak_ptr<Session> none;
  if (session == nullptr && (scope_.owner_before(none) || none.owner_before(scope_)))
    throw Error(absl::FailedPreconditionError(
                    "a tensor that nothing has computed belongs to a session that has ended"),
                at);
  return session;
}

int64_t LazyGraph::TakePlace() {
  if (free_.empty()) {
    places_.emplace_back();
    return static_cast<int64_t>(places_.size()) - 1;
  }
  const int64_t place = free_.top();
  free_.pop();
  places_[place].free = false;
  return place;
}

int64_t LazyGraph::PlaceOf(const std::shared_ptr<CloudBuffer>& buffer) {
  if (buffer->place < 0 || buffer->lazy_graph.lock().get() != this) {
    buffer->place = TakePlace();
    buffer->lazy_graph = weak_from_this();
    places_[buffer->place].owner = buffer;
  }
  places_[buffer->place].pin = buffer;
  return buffer->place;
}

const UOp* LazyGraph::NodeOf(const std::shared_ptr<CloudBuffer>& buffer, const At& at) {
  std::vector<int64_t> arg = {PlaceOf(buffer)};
  std::vector<const UOp*> src;
  if (buffer->is_symbolic) {
    Shape shape;
    for (const SymInt& size : buffer->sizes) {
      absl::StatusOr<Dim> dim =
          DimIn(graph_, size, [&](const BoundVariable& bound) { return VarOf(bound, at); });
      ThrowIfError(dim.status(), at);
      shape.push_back(*dim);
    }
    AppendDims(shape, arg, src);
  } else {
    arg.insert(arg.end(), buffer->dims.begin(), buffer->dims.end());
  }
  absl::StatusOr<const UOp*> node = graph_.Make(Op::kBuffer, buffer->dtype, src, arg);
  ThrowIfError(node.status(), at);
  Note(*node, at);
  return *node;
}

RangedVariable LazyGraph::RangeOf(const BoundVariable& bound) const {
  const auto& [variable, value] = bound;
  RangedVariable range = {variable, variable.min(), variable.max()};
  for (const RangedVariable& narrowed : narrowings_) {
    if (narrowed.variable != variable || !narrowed.Holds(value)) continue;
    range.least = std::max(range.least, narrowed.least);
    range.most = std::min(range.most, narrowed.most);
  }
  return range;
}

const UOp* LazyGraph::VarIn(const RangedVariable& range, const At& at) {
  const Variable& variable = range.variable;
  const size_t slot = std::find(variables_.begin(), variables_.end(), range) - variables_.begin();
  if (slot == variables_.size()) {
    if (slot == limits::kVarSlotMax)
      throw Error(absl::ResourceExhaustedError(absl::StrCat("variable ", variable.name(),
                                                            " is one more than the limit of ",
                                                            limits::kVarSlotMax)),
                  at);
    variables_.push_back(range);
  }
  absl::StatusOr<const UOp*> var =
      graph_.Make(Op::kVar, DType::kI64, {}, {static_cast<int64_t>(slot), range.least, range.most});
  ThrowIfError(var.status(), at);
  Note(*var, at);
  return *var;
}

const UOp* LazyGraph::Narrowed(const UOp* node, const std::vector<BoundVariable>& bound,
                               const At& at) {
  if (narrowings_.empty() || bound.empty()) return node;
  absl::flat_hash_map<const UOp*, const UOp*> by;
  for (const UOp* var : PostOrder(node)) {
    if (var->op != Op::kVar) continue;
    const auto now = std::ranges::find_if(
        bound, [&](const BoundVariable& b) { return b.variable == VariableOf(var); });
    if (now == bound.end()) continue;
    RangedVariable range = RangeOf(*now);  // and never wider: a shape relies on what it was made of
    range.least = std::max(range.least, outboard::VarOf(var).min());
    range.most = std::min(range.most, outboard::VarOf(var).max());
    if (const UOp* const narrow = VarIn(range, at); narrow != var) by[var] = narrow;
  }
  return by.empty() ? node : Substitute(graph_, node, by);
}

void LazyGraph::Narrow(const RangedVariable& range, const At& at) {
  narrowings_.push_back(range);
  ++narrowing_count_;
  for (TensorState* state = first_; state != nullptr; state = state->next)
    state->node = Narrowed(state->node, state->bound, at);
}

std::vector<Binding> LazyGraph::BindingsOf(const std::vector<BoundVariable>& bound) const {
  std::vector<Binding> bindings;
  for (const auto& [variable, value] : bound)
    for (size_t slot = 0; slot < variables_.size(); ++slot)
      if (variables_[slot].variable == variable)
        bindings.push_back({static_cast<int64_t>(slot), value});
  return bindings;
}

const UOp* LazyGraph::Import(LazyGraph& other, const UOp* node,
                             const std::vector<BoundVariable>& bound, const At& at) {
  const int64_t before = graph_.node_count();
  absl::flat_hash_map<const UOp*, const UOp*> made;
  std::vector<const UOp*> src;
  for (const UOp* old : PostOrder(node)) {
    if (old->op == Op::kVar) {
      made[old] = VarIn(other.variables_[outboard::VarOf(old).slot()], at);
      continue;
    }
    src.clear();
    absl::StatusOr<const UOp*> copy;
    if (old->op == Op::kBuffer) {
      Shape shape;
      for (const Dim& dim : old->shape)
        shape.push_back(dim.is_const() ? dim : Dim(made.at(dim.expression())));
      std::vector<int64_t> arg = {PlaceOf(other.StorageAt(BufferOf(old).name()))};
      AppendDims(shape, arg, src);
      copy = graph_.Make(Op::kBuffer, old->dtype, src, arg);
    } else {
      for (const UOp* source : old->src) src.push_back(made.at(source));
      copy = graph_.WithSources(old, src);
    }
    ThrowIfError(copy.status(), at);
    Note(*copy, other.LineOf(old));
    made[old] = *copy;
  }
  imported_ += graph_.node_count() - before;
  // One computation has one range of a variable: the narrower one.
  for (const UOp* old : PostOrder(node)) {
    if (old->op != Op::kVar) continue;
    const RangedVariable& there = other.variables_[outboard::VarOf(old).slot()];
    for (const BoundVariable& b : bound) {
      if (b.variable != there.variable) continue;
      const RangedVariable here = RangeOf(b);
      if (there.least > here.least || there.most < here.most) Narrow(there, at);
    }
  }
  return Narrowed(made.at(node), bound, at);
}

void LazyGraph::ForgetNarrowings() {
  std::erase_if(narrowings_, [&](const RangedVariable& range) {
    for (const TensorState* state = first_; state != nullptr; state = state->next)
      for (const BoundVariable& bound : state->bound)
        if (bound.variable == range.variable) return false;
    return true;
  });
}

void LazyGraph::Unpin() {
  ForgetNarrowings();
  std::vector<const UOp*> live;
  for (const TensorState* state = first_; state != nullptr; state = state->next)
    live.push_back(state->node);
  std::vector<bool> reached(places_.size(), false);
  for (const UOp* node : PostOrder(live))
    if (node->op == Op::kBuffer) reached[BufferOf(node).name()] = true;
  for (size_t i = 0; i < places_.size(); ++i) {
    Place& place = places_[i];
    if (place.free || reached[i]) continue;
    place.pin = nullptr;
    const std::shared_ptr<CloudBuffer> owner = place.owner.lock();
    if (owner != nullptr && owner->place == static_cast<int64_t>(i) &&
        owner->lazy_graph.lock().get() == this)
      continue;
    place.free = true;
    free_.push(static_cast<int64_t>(i));
  }
}

void LazyGraph::MovePlace(CloudBuffer& from, const std::shared_ptr<CloudBuffer>& to) {
  if (from.place < 0 || from.lazy_graph.lock().get() != this) return;
  to->place = std::exchange(from.place, -1);
  to->lazy_graph = weak_from_this();
  places_[to->place].owner = to;
}

At LazyGraph::LineOf(const UOp* node) const {
  return node->index < lines_.size() ? lines_[node->index].at : At();
}

std::shared_ptr<const Lines> LazyGraph::LinesUnder(const UOp* sink) const {
  auto lines = std::make_shared<Lines>();
  for (const UOp* node : PostOrder(sink)) lines->push_back(LineOf(node));
  return lines;
}

const UOp* LazyGraph::WithVarsNumbered(const UOp* sink, std::vector<RangedVariable>& variables) {
  absl::flat_hash_map<const UOp*, const UOp*> numbered;
  for (const UOp* node : PostOrder(sink)) {
    if (node->op != Op::kVar) continue;
    const auto slot = static_cast<int64_t>(variables.size());
    const outboard::VarOf range(node);
    numbered[node] =
        graph_.MakeChecked(Op::kVar, DType::kI64, {}, {slot, range.min(), range.max()});
    variables.push_back(variables_[range.slot()]);
  }
  return Substitute(graph_, sink, numbered);
}

const EncodedRun& LazyGraph::Encode(const UOp* sink, const At& at) {
  const trace::Scope scope(trace::Trace::OfProcess(), "encode");
  Note(sink, at);
  ++encodes_;
  const auto found = encoded_.find(sink);
  if (found != encoded_.end() && found->second.line_changes == line_changes_) return found->second;
  if (found == encoded_.end()) {
    std::vector<RangedVariable> variables;
    absl::StatusOr<EncodedGraph> graph = EncodeGraph(WithVarsNumbered(sink, variables));
    ThrowIfError(graph.status(), at);
    SaveGraph(*graph);
    EncodedRun& run = encoded_[sink];
    run.variables = std::move(variables);
    run.bytes = std::make_shared<const std::string>(std::move(graph->bytes));
    run.id = graph->id.bytes;
    run.places.assign(graph->buffers.begin(), graph->buffers.end());
  }
  EncodedRun& run = encoded_[sink];
  run.lines = LinesUnder(sink);
  run.line_changes = line_changes_;
  return run;
}

const std::vector<const UOp*>& LazyGraph::InputsOf(const UOp* node) {
  const auto [found, is_new] = inputs_.try_emplace(node);
  if (is_new) {
    for (const UOp* n : PostOrder(node))
      if (n->op == Op::kBuffer) found->second.push_back(n);
    std::sort(found->second.begin(), found->second.end());
  }
  return found->second;
}

const std::vector<bool>& LazyGraph::Under(const UOp* node) {
  const auto [found, is_new] = under_.try_emplace(node);
  if (is_new) {
    for (const UOp* n : PostOrder(node)) {
      if (n->index >= found->second.size()) found->second.resize(n->index + 1);
      found->second[n->index] = true;
    }
  }
  return found->second;
}

const std::vector<const UOp*>* LazyGraph::FindGradient(const std::vector<const UOp*>& key) const {
  const auto found = gradients_.find(key);
  return found == gradients_.end() ? nullptr : &found->second;
}

void LazyGraph::KeepGradient(std::vector<const UOp*> key, std::vector<const UOp*> gradients) {
  gradients_[std::move(key)] = std::move(gradients);
}

namespace {

class Origin final : public session::RunOrigin {
 public:
  Origin(const At& at, std::shared_ptr<const Lines> lines) : at_(at), lines_(std::move(lines)) {}

  std::string SentAt() const override { return LineOf(at_); }
  std::string WrittenAt(uint32_t node) const override {
    return node < lines_->size() ? LineOf((*lines_)[node]) : std::string();
  }

 private:
  const At at_;
  const std::shared_ptr<const Lines> lines_;
};

}  // namespace

std::shared_ptr<const session::RunOrigin> OriginOf(const At& at,
                                                   std::shared_ptr<const Lines> lines) {
  return std::make_shared<const Origin>(at, std::move(lines));
}

}  // namespace outboard::internal
