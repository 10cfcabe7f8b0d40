// Invariants, of executor_core.cc's list
//   E2  A handle is in the table from the item that defines it to its Release or donation. It holds
//       an array, or the status of the item that failed to compute it (poison), with the item that
//       failed first.
//   E3  Handles of donated inputs are removed before the Run starts, whether it fails or not: the
//       engine may overwrite the inputs, and a partially written one has no handle. Otherwise a
//       failed Run changes only its outputs, which become poison.
//   E7  A kernel's version changes only between two Runs, and the kernel use log records before
//       which. Replaying the same items with that log gives the same bits.
//   E10 A name refers to the handle that its last Keep or Run.rekept said, whether the Run failed
//       or not. A handle with a name is ended by no client of this version; one that is ended all
//       the same is listed as lost.
#include "worker/session/session_state.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/failed_node.h"
#include "telemetry/counters.h"
#include "wire/limits.h"
#include "wire/retryable.h"

namespace outboard::worker {

namespace {
constexpr size_t kKeptMessageBytesMax = 1000;  // of each in a list of many
}  // namespace

struct SessionState::PartialPut {
  uint64_t seq = 0;
  uint64_t total = 0;  // as the first piece said, and the array is
  uint64_t filled = 0;
  std::shared_ptr<DeviceArray> array;
  absl::Status status;
};

SessionState::SessionState(Engine* engine, std::vector<KernelUseRecord> follow)
    : engine_(engine), follow_(std::move(follow)) {}
SessionState::~SessionState() = default;

uint64_t SessionState::put_under_way() const { return put_ != nullptr ? put_->seq : 0; }
void SessionState::ForgetPutUnderWay() { put_.reset(); }
void SessionState::Clear() { handles_.clear(); }

// ---- Run ----------------------------------------------------------------------------------------

absl::Status SessionState::CheckRun(uint64_t seq, const proto::Run& run,
                                    const KnownGraph& graph) const {
  OB_RETURN_IF_ERROR(graph.status);
  for (const uint32_t device : run.devices())
    if (device != 0) return absl::UnimplementedError("a Run on more than one device");
  std::vector<uint64_t> outputs(run.outputs().begin(), run.outputs().end());
  std::sort(outputs.begin(), outputs.end());
  if (const auto twice = std::adjacent_find(outputs.begin(), outputs.end()); twice != outputs.end())
    return absl::InvalidArgumentError(absl::StrCat("two outputs have the handle ", *twice));
  for (const uint32_t i : run.donate())
    if (i >= static_cast<uint32_t>(run.inputs_size()))
      return absl::InvalidArgumentError(
          absl::StrCat("donates input ", i, " of ", run.inputs_size()));
  for (const uint32_t i : run.fetch())
    if (i >= static_cast<uint32_t>(run.outputs_size()))
      return absl::InvalidArgumentError(
          absl::StrCat("fetches output ", i, " of ", run.outputs_size()));
  OB_RETURN_IF_ERROR(names_.Check(run));
  if (const auto refused = refused_.find(seq); refused != refused_.end()) return refused->second;
  OB_RETURN_IF_ERROR(RepeatOf(run).status());
  for (const uint64_t handle : run.outputs())
    if (handle == 0 || handles_.contains(handle))
      return absl::InvalidArgumentError(absl::StrCat("output handle ", handle, " is in use"));
  return absl::OkStatus();
}

absl::Status SessionState::FindInputs(const proto::Run& run, std::vector<DeviceArrayPtr>& inputs,
                                      uint64_t& cause_seq) const {
  for (const uint64_t handle : run.inputs()) {
    const auto entry = handles_.find(handle);
    if (entry == handles_.end())
      return absl::NotFoundError(absl::StrCat("input handle ", handle, " does not exist"));
    if (entry->second.array == nullptr) {
      cause_seq = entry->second.cause_seq;
      return entry->second.status;  // E2: the first cause
    }
    inputs.push_back(entry->second.array);
  }
  return absl::OkStatus();
}

std::vector<int64_t> SessionState::EndDonated(const proto::Run& run) {
  std::vector<int64_t> donated;
  for (const uint32_t i : run.donate()) {
    if (i >= static_cast<uint32_t>(run.inputs_size())) continue;
    if (handles_.erase(run.inputs(i)) > 0) donated.push_back(i);  // E3
  }
  return donated;
}

Outcome SessionState::ApplyRun(uint64_t seq, const proto::Run& run, const KnownGraph& graph,
                               const JoinGraphs& whole) {
  telemetry::Count(telemetry::Metric::kWorkerSteps);
  Outcome outcome;
  uint64_t cause_seq = seq;
  std::vector<DeviceArrayPtr> inputs, outputs, fetched;
  absl::Status status = CheckRun(seq, run, graph);
  if (status.ok()) status = FindInputs(run, inputs, cause_seq);
  const std::vector<int64_t> donated = EndDonated(run);
  names_.Follow(run);  // E10
  if (status.ok()) {
    absl::StatusOr<std::vector<DeviceArrayPtr>> results =
        ExecuteGraph(seq, graph, run, std::move(inputs), donated, outcome.session_error);
    status = results.status();
    if (results.ok()) outputs = *std::move(results);
  }
  for (const uint32_t i : run.fetch()) {
    if (!status.ok()) break;
    absl::StatusOr<DeviceArrayPtr> value = Joined(whole, i, outputs[i]);
    status = value.status();
    if (value.ok()) fetched.push_back(*std::move(value));
  }
  if (!status.ok()) {
    outcome.answers.push_back(Fail(seq, cause_seq, status,
                                   {run.outputs().data(), static_cast<size_t>(run.outputs_size())},
                                   run.graph_id()));
    return outcome;
  }
  for (int i = 0; i < run.outputs_size(); ++i) handles_[run.outputs(i)].array = outputs[i];
  for (int i = 0; i < run.fetch_size(); ++i)
    outcome.answers.push_back(
        Answer{std::move(fetched[i]), run.fetch(i), run.outputs(run.fetch(i)), {}});
  return outcome;
}

absl::StatusOr<std::vector<DeviceArrayPtr>> SessionState::ExecuteGraph(
    uint64_t seq, const KnownGraph& graph, const proto::Run& run,
    std::vector<DeviceArrayPtr> inputs, std::span<const int64_t> donated,
    absl::Status& session_error) {
  if (graph.sink->src.size() != static_cast<size_t>(run.outputs_size()))
    return absl::InvalidArgumentError(absl::StrCat("the graph has ", graph.sink->src.size(),
                                                   " results, the Run names ",
                                                   run.outputs_size()));
  std::vector<Binding> bindings;
  for (const proto::Binding& binding : run.bindings())
    bindings.push_back({binding.slot(), binding.value()});
  OB_ASSIGN_OR_RETURN(const std::optional<Repeat> repeat, RepeatOf(run));
  for (; followed_ < follow_.size() && follow_[followed_].seq <= seq; ++followed_)
    engine_->Pin(follow_[followed_].version);
  // While what is being stored may be what memory lacks, inputs are kept for a second try. In a
  // group what one rank tries again the others do not: there the engine makes room before it
  // begins.
  std::vector<DeviceArrayPtr> again;
  const bool is_group = engine_->group() != nullptr;
  if (!being_stored_.expired() && !is_group) again = inputs;
  engine_->SetMakeRoom(!being_stored_.expired() && is_group ? let_go_ : std::function<void()>());
  const auto execute = [&](std::vector<DeviceArrayPtr> with) {
    if (!repeat) return engine_->Execute(graph.id, graph.sink, std::move(with), bindings, donated);
    return engine_->ExecuteRepeated(graph.id, graph.sink, std::move(with), bindings, *repeat,
                                    [this] { ++repetitions_; });
  };
  absl::StatusOr<std::vector<DeviceArrayPtr>> results = execute(std::move(inputs));
  if (!is_group && MadeRoom(results.status()))
    results = execute(std::exchange(again, {}));
  for (KernelVersion& version : engine_->TakeVersions())  // E7
    session_error.Update(kernel_use_log_.Note(seq, std::move(version)));
  return results;
}

// ---- Put, Release, Fetch ------------------------------------------------------------------------

void SessionState::SetBeingStored(std::weak_ptr<const PersistRequest> stored,
                                  std::function<void()> let_go) {
  being_stored_ = std::move(stored);
  let_go_ = std::move(let_go);
}

bool SessionState::MadeRoom(const absl::Status& status) const {
  if (!absl::IsResourceExhausted(status) || being_stored_.expired() || !let_go_) return false;
  let_go_();
  return being_stored_.expired();
}

absl::Status SessionState::CheckPut(const proto::Put& put) const {
  if (put.handle() == 0 || handles_.contains(put.handle()))
    return absl::InvalidArgumentError(absl::StrCat("handle ", put.handle(), " is in use"));
  if (put.dtype() == 0 || put.dtype() >= static_cast<uint32_t>(kDTypeCount))
    return absl::InvalidArgumentError(absl::StrCat("element type ", put.dtype(), " is unknown"));
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<DeviceArray>> SessionState::ArrayForPut(const proto::Put& put) {
  OB_RETURN_IF_ERROR(CheckPut(put));
  const std::vector<int64_t> dims(put.dims().begin(), put.dims().end());
  const auto dtype = static_cast<DType>(put.dtype());
  absl::StatusOr<std::shared_ptr<DeviceArray>> array = engine_->NewArrayForUpload(dtype, dims);
  if (MadeRoom(array.status())) array = engine_->NewArrayForUpload(dtype, dims);
  if (array.ok() && static_cast<uint64_t>((*array)->bytes()) != put.total_bytes())
    return absl::InvalidArgumentError(
        absl::StrCat("a Put of ", put.total_bytes(), " bytes for an array of ", (*array)->bytes()));
  return array;
}

Outcome SessionState::ApplyPut(uint64_t seq, const proto::Put& piece) {
  Outcome outcome;
  if (put_ == nullptr) {
    put_ = std::make_unique<PartialPut>();
    put_->seq = seq;
    put_->total = piece.total_bytes();
    absl::StatusOr<std::shared_ptr<DeviceArray>> array = ArrayForPut(piece);
    if (array.ok())
      put_->array = *std::move(array);
    else
      put_->status = array.status();
  }
  if (piece.total_bytes() != put_->total || piece.offset() != put_->filled ||
      piece.data().size() > put_->total - put_->filled) {
    outcome.session_error = absl::InvalidArgumentError("the pieces of a Put are not consecutive");
    return outcome;
  }
  if (put_->array != nullptr) {
    const auto offset = static_cast<int64_t>(piece.offset());
    put_->status = engine_->device().Upload(put_->array->address() + offset, piece.data());
    if (!put_->status.ok()) put_->array.reset();
  }
  put_->filled += piece.data().size();
  outcome.applied = put_->filled == put_->total;
  if (!outcome.applied) return outcome;
  const std::unique_ptr<PartialPut> whole = std::move(put_);
  const uint64_t handle = piece.handle();
  if (whole->status.ok())
    handles_[handle].array = std::move(whole->array);
  else
    outcome.answers.push_back(Fail(seq, seq, whole->status, {&handle, 1}));
  return outcome;
}

Outcome SessionState::ApplyPutBlob(uint64_t seq, const proto::Put& put, std::vector<int64_t> dims,
                                   absl::StatusOr<runtime::DeviceBuffer> contents) {
  Outcome outcome;
  const uint64_t handle = put.handle();
  absl::Status status = CheckPut(put);
  status.Update(contents.status());
  const auto dtype = static_cast<DType>(put.dtype());
  if (status.ok()) status = CheckBytes(dtype, dims, contents->bytes());
  if (status.ok())
    handles_[handle].array =
        std::make_shared<DeviceArray>(DeviceArray{dtype, dims, *std::move(contents)});
  else
    outcome.answers.push_back(Fail(seq, seq, status, {&handle, 1}));
  return outcome;
}

Outcome SessionState::ApplyRelease(const proto::Release& release) {
  for (const uint64_t handle : release.handles()) handles_.erase(handle);
  return {};
}

absl::StatusOr<DeviceArrayPtr> SessionState::Joined(const JoinGraphs& whole, uint32_t index,
                                                    DeviceArrayPtr array) {
  const auto graph = whole.find(index);
  if (graph == whole.end()) return array;
  OB_RETURN_IF_ERROR(graph->second->status);
  OB_ASSIGN_OR_RETURN(
      std::vector<DeviceArrayPtr> results,
      engine_->Execute(graph->second->id, graph->second->sink, {std::move(array)}, {}, {}));
  if (results.size() != 1) return absl::InternalError("a graph for a whole array has one result");
  return std::move(results[0]);
}

Outcome SessionState::ApplyFetch(uint64_t seq, const proto::Fetch& fetch, const JoinGraphs& whole) {
  Outcome outcome;
  for (int i = 0; i < fetch.handles_size(); ++i) {
    const auto entry = handles_.find(fetch.handles(i));
    absl::Status status;
    uint64_t cause_seq = seq;
    if (entry == handles_.end()) {
      status = absl::NotFoundError(absl::StrCat("handle ", fetch.handles(i), " does not exist"));
    } else if (entry->second.array == nullptr) {
      status = entry->second.status;
      cause_seq = entry->second.cause_seq;
    }
    if (!status.ok()) {
      outcome.answers.clear();  // all or none
      outcome.answers.push_back(Fail(seq, cause_seq, status, {}));
      return outcome;
    }
    const auto index = static_cast<uint32_t>(i);
    absl::StatusOr<DeviceArrayPtr> array = Joined(whole, index, entry->second.array);
    if (!array.ok()) {
      outcome.answers.clear();
      outcome.answers.push_back(Fail(seq, seq, array.status(), {}));
      return outcome;
    }
    outcome.answers.push_back(Answer{*std::move(array), index, fetch.handles(i), {}});
  }
  return outcome;
}

Outcome SessionState::ApplySave(uint64_t seq, const proto::Save& save, PersistRequest& request,
                                const JoinGraphs& whole) {
  std::map<std::string, DeviceArrayPtr> sorted;
  absl::Status status;
  uint64_t cause_seq = seq;
  for (int i = 0; i < save.entries_size() && status.ok(); ++i) {
    const proto::Save::Entry& named = save.entries(i);
    const auto entry = handles_.find(named.handle());
    if (sorted.contains(named.name()))
      status = absl::InvalidArgumentError(absl::StrCat("two entries are named ", named.name()));
    else if (entry == handles_.end())
      status = absl::NotFoundError(absl::StrCat("handle ", named.handle(), " does not exist"));
    else if (entry->second.array == nullptr)
      status = entry->second.status, cause_seq = entry->second.cause_seq;
    if (!status.ok()) break;
    absl::StatusOr<DeviceArrayPtr> array =
        Joined(whole, static_cast<uint32_t>(i), entry->second.array);
    status = array.status();
    if (array.ok()) sorted[named.name()] = *std::move(array);
  }
  Outcome outcome;
  if (!status.ok()) {
    outcome.answers.push_back(Fail(seq, cause_seq, status, {}));
    return outcome;
  }
  request.seq = seq;
  request.checkpoint = true;
  request.name = save.name();
  for (const auto& [name, array] : sorted) {
    proto::Checkpoint::Entry* const entry = request.manifest.add_entries();
    entry->set_name(name);
    entry->set_size_bytes(static_cast<uint64_t>(array->bytes()));
    Describe(*array, entry);
    request.arrays.push_back(array);
  }
  return outcome;
}

Outcome SessionState::ApplyKeep(uint64_t seq, const proto::Keep& keep) {
  Outcome outcome;
  absl::Status status;
  for (const proto::Keep::Entry& entry : keep.entries())
    if (!handles_.contains(entry.handle()))
      status.Update(
          absl::NotFoundError(absl::StrCat("handle ", entry.handle(), " does not exist")));
  if (status.ok()) status = names_.Set(keep.entries());
  if (!status.ok()) outcome.answers.push_back(Fail(seq, seq, status, {}));
  return outcome;
}

std::vector<proto::Kept> SessionState::ListKept() const {
  std::vector<proto::Kept> pieces(1);
  size_t bytes = 0;
  for (const auto& [id, name] : names_.by_id()) {
    proto::Kept::Entry entry;
    entry.set_name(name.text);
    entry.set_handle(name.handle);
    const auto held = handles_.find(name.handle);
    if (held != handles_.end() && held->second.array != nullptr) {
      Describe(*held->second.array, &entry);
    } else {
      const absl::Status why = held != handles_.end()
                                   ? held->second.status
                                   : absl::DataLossError("the array was released");  // E10
      entry.set_code(static_cast<uint32_t>(why.code()));
      entry.set_message(std::string(why.message().substr(0, kKeptMessageBytesMax)));
    }
    bytes += entry.ByteSizeLong() + 8;
    if (bytes > wire::kPieceBytesMax) {
      pieces.emplace_back();
      bytes = 0;
    }
    *pieces.back().add_entries() = std::move(entry);
  }
  uint64_t last = 0;
  for (const auto& [handle, entry] : handles_) last = std::max(last, handle);
  pieces.back().set_is_last(true);
  pieces.back().set_next_handle(last + 1);
  return pieces;
}

Answer SessionState::Fail(uint64_t seq, uint64_t cause_seq, const absl::Status& status,
                          std::span<const uint64_t> handles, std::string_view graph_id) {
  Answer answer;
  proto::Failed& failed = answer.failed;
  for (const uint64_t handle : handles) {
    if (handle != 0 && !handles_.contains(handle))
      handles_[handle] = Entry{nullptr, status, cause_seq};
    failed.add_handles(handle);
  }
  failed.set_seq(seq);
  failed.set_code(static_cast<uint32_t>(status.code()));
  failed.set_message(std::string(status.message()));
  failed.set_cause_seq(cause_seq);
  failed.set_graph_id(std::string(graph_id));
  if (const std::optional<FailedNode> node = FailedNodeOf(status)) {
    failed.set_node(node->index);
    failed.set_op(node->op);
  }
  failed.set_retryable(wire::IsRetryable(wire::FailureOf::kItem, status.code()));
  return answer;
}

// ---- snapshots ----------------------------------------------------------------------------------

void SessionState::AddTo(PersistRequest& request) const {
  std::vector<uint64_t> handles;
  for (const auto& [handle, entry] : handles_) handles.push_back(handle);
  std::sort(handles.begin(), handles.end());
  for (const uint64_t handle : handles) {
    const Entry& entry = handles_.at(handle);
    proto::SessionSnapshot::Held& held = *request.snapshot.add_held();
    held.set_handle(handle);
    if (entry.array != nullptr) {
      Describe(*entry.array, &held);
      request.arrays.push_back(entry.array);
      continue;
    }
    held.set_code(static_cast<uint32_t>(entry.status.code()));
    held.set_message(std::string(entry.status.message()));
    held.set_cause_seq(entry.cause_seq);
    if (const std::optional<FailedNode> node = FailedNodeOf(entry.status)) {
      held.set_node(node->index);
      held.set_op(node->op);
    }
  }
  names_.AddTo(request.snapshot);
  for (const KernelUseRecord& entry : kernel_use_log_.entries())
    *request.snapshot.add_kernel_uses() = ToWire(entry);
}

absl::Status SessionState::RestoreKernelUses(std::span<const KernelUseRecord> restored) {
  absl::flat_hash_map<KernelId, const KernelUseRecord*>
      last;  // in use now; those before are history
  for (const KernelUseRecord& entry : restored) {
    OB_RETURN_IF_ERROR(kernel_use_log_.Note(entry.seq, entry.version));
    last[entry.version.kernel] = &entry;
  }
  for (const KernelUseRecord& entry : restored)
    if (last.at(entry.version.kernel) == &entry) follow_.push_back(entry);
  return absl::OkStatus();
}

void SessionState::Follow(std::span<const KernelUseRecord> entries) {
  follow_.insert(follow_.end(), entries.begin(), entries.end());
}

}  // namespace outboard::worker
