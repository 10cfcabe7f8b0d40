// Invariants
//   GR1 handles_ has what the items up to planned_seq_ define, and items_ what was written for
//       those of them that ranks may have to apply: that not all are known to have applied, or
//       where the session can go on elsewhere, that no snapshot holds.
//   GR2 A graph leaves before the first item of an epoch that names it.
//   GR3 What has been planned and not sent can be taken back: unsent_ has what its items changed.
//   GR4 An item that threw may be planned in part, so behind it nothing is planned: is_broken_ is
//       set before anybody else has the lock.
#include "gateway/groups/group_runs.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "compiler/ir/limits.h"
#include "gateway/base/limits.h"
#include "gateway/base/thrown.h"
#include "wire/limits.h"

namespace outboard::gateway {

namespace {

// Whether an array has at least `rows` rows, and the bytes that it says; a client says so.
bool IsOfRows(const proto::Put& put, int64_t rows) {
  if (put.dtype() == 0 || put.dtype() >= static_cast<uint32_t>(kDTypeCount) ||
      put.dims_size() == 0 || put.dims_size() > limits::kRankMax ||
      put.dims(0) < static_cast<uint64_t>(rows))
    return false;
  auto bytes = static_cast<uint64_t>(ByteWidth(static_cast<DType>(put.dtype())));
  for (const uint64_t dim : put.dims()) {
    if (dim == 0 || dim > static_cast<uint64_t>(limits::kDimMax)) return false;
    if (dim > static_cast<uint64_t>(limits::kStoredBytesMax) / bytes) return false;
    bytes *= dim;
  }
  return bytes == put.total_bytes();
}

// A layout in one number; 0 is whole.
uint32_t CodeOf(const shard::Layout& layout) {
  static_assert(limits::kMeshAxesMax <= 4 && limits::kRankMax < 256);
  uint32_t code = 0;
  for (int axis = 0; axis < limits::kMeshAxesMax; ++axis)
    code |= static_cast<uint32_t>(layout.at(axis) + 1) << (8 * axis);
  return code;
}

// As an executor bounds an item, and before anything is counted in it.
absl::Status CheckSize(const proto::ClientItem& item) {
  int64_t entries = 0;
  if (item.has_run()) {
    const proto::Run& run = item.run();
    for (const int64_t count : {run.inputs_size(), run.outputs_size(), run.donate_size(),
                                run.fetch_size(), run.carry_size(), run.stack_size()})
      entries = std::max(entries, count);
  } else if (item.has_fetch()) {
    entries = item.fetch().handles_size();
  } else if (item.has_save()) {
    entries = item.save().entries_size();
  }
  if (entries <= static_cast<int64_t>(wire::kRunHandlesMax)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("item ", item.seq(), " names ", entries,
                                                 " handles; limit ", wire::kRunHandlesMax));
}

}  // namespace

absl::Status GroupRuns::CheckRoom(size_t bytes) const {
  if (graphs_.size() < kGroupGraphsMax && graph_bytes_ + bytes <= kGroupGraphBytesMax)
    return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("the graphs of a session on several devices are over the limit of ",
                   kGroupGraphsMax, " or of ", kGroupGraphBytesMax, " bytes"));
}

// One that was refused may be good: other bytes came under its id.
absl::Status GroupRuns::AddGraph(const std::string& id, std::string bytes) {
  std::lock_guard lock(mutex_);
  const auto known = graphs_.find(id);
  if (known != graphs_.end() && std::holds_alternative<std::string>(known->second.what))
    return absl::OkStatus();
  if (absl::Status room = CheckRoom(bytes.size()); !room.ok()) return room;
  graph_bytes_ += bytes.size();
  sent_.erase(id);  // the refusal, under the same id
  graphs_[id].what = std::move(bytes);
  return absl::OkStatus();
}

absl::Status GroupRuns::AddRefused(const std::string& id, absl::Status why) {
  std::lock_guard lock(mutex_);
  if (graphs_.contains(id)) return absl::OkStatus();
  if (absl::Status room = CheckRoom(why.message().size()); !room.ok()) return room;
  graph_bytes_ += why.message().size();
  graphs_[id].what = std::make_shared<const WrittenGraph>(
      WrittenGraph{.status = std::move(why), .id = id, .is_clients = true});
  return absl::OkStatus();
}

absl::StatusOr<GroupRuns::Planned> GroupRuns::PlanFrame(bool may_write,
                                                        const proto::ClientFrame& frame,
                                                        uint64_t generation) {
  std::unique_lock lock(mutex_);
  if (is_broken_) return AfterThrown("a frame of the session");
  absl::Cleanup breaks = [&] {  // unless it returns
    if (!lock.owns_lock()) lock.lock();
    is_broken_ = true;
  };
  absl::StatusOr<Planned> planned = PlanItems(may_write, frame, generation, lock);
  std::move(breaks).Cancel();
  return planned;
}

absl::StatusOr<GroupRuns::Planned> GroupRuns::PlanItems(bool may_write,
                                                        const proto::ClientFrame& frame,
                                                        uint64_t generation,
                                                        std::unique_lock<std::mutex>& lock) {
  for (const proto::ClientItem& item : frame.items()) {
    if (generation != generation_) return Planned::kAll;  // the frame goes nowhere
    if (item.seq() == 0 || item.seq() <= planned_seq_) continue;
    if (absl::Status fits = CheckSize(item); !fits.ok()) return fits;
    const absl::StatusOr<Planned> planned = PlanItem(may_write, item, lock);
    if (generation != generation_) return Planned::kAll;
    if (!planned.ok() || *planned == Planned::kMustWrite) return planned;
    planned_seq_ = item.seq();
    if (handles_.size() > kGroupHandlesMax || handles_.places() > 2 * kGroupHandlesMax)
      return absl::ResourceExhaustedError(absl::StrCat(
          "the session has ", handles_.size(), " handles, ", handles_.places(),
          " with those between them; limits ", kGroupHandlesMax, " and ", 2 * kGroupHandlesMax));
  }
  return Planned::kAll;
}

absl::StatusOr<GroupRuns::Planned> GroupRuns::PlanItem(bool may_write,
                                                       const proto::ClientItem& item,
                                                       std::unique_lock<std::mutex>& lock) {
  switch (item.kind_case()) {
    case proto::ClientItem::kRun: return PlanRun(may_write, item.seq(), item.run(), lock);
    case proto::ClientItem::kPut: PlanPut(item.seq(), item.put()); break;
    case proto::ClientItem::kRelease:
      for (const uint64_t handle : item.release().handles()) Erase(handle);
      break;
    case proto::ClientItem::kFetch: {
      Item planned;
      for (int i = 0; i < item.fetch().handles_size(); ++i)
        PlanGather(static_cast<uint32_t>(i), item.fetch().handles(i), planned);
      if (!planned.whole.empty()) items_[item.seq()] = std::move(planned);
      break;
    }
    case proto::ClientItem::kSave: {
      Item planned;
      for (int i = 0; i < item.save().entries_size(); ++i)
        PlanGather(static_cast<uint32_t>(i), item.save().entries(i).handle(), planned);
      if (!planned.whole.empty()) items_[item.seq()] = std::move(planned);
      break;
    }
    default: break;
  }
  return Planned::kAll;
}

// What is put is data, or state that was stored: it is whole as long as it has room, since data is
// most often read in another order than it lies in.
void GroupRuns::PlanPut(uint64_t seq, const proto::Put& put) {
  Erase(put.handle());
  const auto bytes = static_cast<int64_t>(
      std::min<uint64_t>(put.total_bytes(), static_cast<uint64_t>(limits::kStoredBytesMax)));
  Handle defined{.bytes = bytes};
  const bool may_cut = spread_ == shard::Spread::kAuto || spread_ == shard::Spread::kFsdp;
  if (may_cut && !put.blob_root().empty() && memory_.bytes > 0 &&
      memory_.held_bytes + bytes > memory_.bytes / 2 && IsOfRows(put, mesh_.ranks())) {
    WrittenGraph::Result stored;
    stored.dtype = static_cast<DType>(put.dtype());
    stored.dims.assign(put.dims().begin(), put.dims().end());
    stored.layout.cut.assign(mesh_.sizes.size(), 0);
    stored.bytes = ByteWidth(stored.dtype);
    for (const int64_t dim : shard::LocalDims(mesh_, stored.layout, stored.dims))
      stored.bytes *= dim;
    defined = HandleOf(std::make_shared<const WrittenGraph::Result>(std::move(stored)));
    items_[seq].parts = static_cast<uint32_t>(mesh_.ranks());
  }
  Define(put.handle(), std::move(defined));
}

// A graph of one node is written in no time.
void GroupRuns::PlanGather(uint32_t index, uint64_t handle, Item& item) {
  const Handle* const found = handles_.Find(handle);
  if (found == nullptr || found->cut == nullptr) return;
  item.whole[index] = sharder_->Gather(tenant_, mesh_, *found->cut);
}

GroupRuns::Handle GroupRuns::HandleOf(std::shared_ptr<const WrittenGraph::Result> stored) {
  Handle handle{.bytes = stored->bytes, .layout = CodeOf(stored->layout)};
  if (handle.layout != 0) handle.cut = std::move(stored);
  return handle;
}

void GroupRuns::Hold(shard::DeviceMemory& memory, const Handle& handle, int64_t times) {
  memory.held_bytes += times * handle.bytes;
  if (handle.layout != 0) memory.held_cut_bytes += times * handle.bytes;
}

// What the session holds beside the inputs of a Run, in few steps, so that a step that is sent
// again finds what was written.
shard::DeviceMemory GroupRuns::MemoryFor(const proto::Run& run) const {
  shard::DeviceMemory memory = memory_;
  for (const uint64_t handle : run.inputs())
    if (const Handle* const found = handles_.Find(handle); found != nullptr)
      Hold(memory, *found, -1);
  const int64_t step = std::max<int64_t>(memory_.bytes / kHeldMemorySteps, 1);
  memory.held_bytes -= memory.held_bytes % step;
  memory.held_cut_bytes -= memory.held_cut_bytes % step;
  return memory;
}

void GroupRuns::DescribeRun(const proto::Run& run, RunKey& key) const {
  std::vector<uint64_t>& words = key.words;
  constexpr uint64_t kState = uint64_t{1} << 32, kDonated = uint64_t{1} << 33;
  words.clear();
  const auto add_list = [&words](const auto& list) {
    words.push_back(static_cast<uint64_t>(list.size()));
    for (const uint64_t entry : list) words.push_back(entry);
  };
  // The memory last: it is known behind the inputs.
  shard::DeviceMemory memory = memory_;
  words.push_back(static_cast<uint64_t>(run.inputs_size()));
  for (const uint64_t handle : run.inputs()) {
    const Handle* const found = handles_.Find(handle);
    words.push_back(found == nullptr ? 0 : found->layout | (found->is_state ? kState : 0));
    if (found != nullptr) Hold(memory, *found, -1);
  }
  for (const uint32_t input : run.donate())
    if (input < static_cast<uint32_t>(run.inputs_size())) words[1 + input] |= kDonated;
  words.push_back(static_cast<uint64_t>(run.outputs_size()));
  words.push_back(static_cast<uint64_t>(run.carry_size()));
  for (const proto::Carry& carry : run.carry())
    words.push_back(uint64_t{carry.output()} << 32 | carry.input());
  add_list(run.fetch());
  add_list(run.stack());
  words.push_back(static_cast<uint64_t>(memory_.bytes));
  if (memory_.bytes == 0) return;
  const int64_t step = std::max<int64_t>(memory_.bytes / kHeldMemorySteps, 1);
  words.push_back(static_cast<uint64_t>(memory.held_bytes / step));
  words.push_back(static_cast<uint64_t>(memory.held_cut_bytes / step));
}

std::shared_ptr<const WrittenGraph> GroupRuns::FindKnown(const ClientGraph& graph,
                                                         const RunKey& key) {
  for (const KnownRun& known : graph.known)
    if (known.key == key) return known.written.lock();
  return nullptr;
}

void GroupRuns::KeepKnown(ClientGraph& graph, const RunKey& key,
                          const std::shared_ptr<const WrittenGraph>& written) {
  if (key.words.size() > kKnownRunWordsMax) return;
  if (known_words_ + key.words.size() > kKnownRunWordsMax) {
    for (auto& [id, other] : graphs_) other.known.clear();
    known_words_ = 0;
  }
  // One whose graph the sharder has dropped since has the same key.
  const auto same = std::ranges::find(graph.known, key, &KnownRun::key);
  if (same != graph.known.end()) {
    same->written = written;
    return;
  }
  if (graph.known.size() < kKnownRunsMax) {
    graph.known.push_back({key, written});
  } else {
    KnownRun& oldest = graph.known[graph.next_known++ % kKnownRunsMax];
    known_words_ -= oldest.key.words.size();
    oldest = {key, written};
  }
  known_words_ += key.words.size();
}

// What does not exist is whole: the Run fails, and says of what.
GraphUse GroupRuns::UseOf(const proto::Run& run) const {
  GraphUse use{.graph_id = run.graph_id(), .mesh = mesh_, .spread = spread_};
  for (const uint64_t handle : run.inputs()) {
    const Handle* const found = handles_.Find(handle);
    const bool is_cut = found != nullptr && found->cut != nullptr;
    use.inputs.push_back(is_cut ? found->cut->layout : shard::Layout{});
    use.state.push_back(found != nullptr && found->is_state);
  }
  use.donated.resize(use.inputs.size());
  for (const uint32_t input : run.donate())
    if (input < use.state.size()) use.state[input] = use.donated[input] = true;
  const auto want = [&](uint32_t output, const shard::Layout& layout) {
    if (output >= static_cast<uint32_t>(run.outputs_size())) return;
    use.results.resize(static_cast<size_t>(run.outputs_size()));
    use.results[output] = layout;
  };
  // What is fetched, or stacked with what other repetitions left. The next repetition takes what it
  // is carried as its first did: where that is in parts, a value is made whole behind the last.
  const auto is_carried = [&](uint32_t output) {
    return std::ranges::any_of(run.carry(),
                               [&](const proto::Carry& carry) { return carry.output() == output; });
  };
  for (const proto::Carry& carry : run.carry()) {
    if (carry.input() >= use.inputs.size()) continue;
    want(carry.output(), use.inputs[carry.input()]);
    if (carry.output() >= static_cast<uint32_t>(run.outputs_size())) continue;
    use.carried_to.resize(static_cast<size_t>(run.outputs_size()), -1);
    use.carried_to[carry.output()] = static_cast<int>(carry.input());
  }
  for (const uint32_t output : run.fetch())
    if (!gathers_fetched_ || !is_carried(output)) want(output, {});
  for (const uint32_t output : run.stack()) want(output, {});
  use.speeds = speeds_;
  if (memory_.bytes > 0) use.memory = MemoryFor(run);
  return use;
}

void GroupRuns::Define(uint64_t handle, Handle defined) {
  Hold(memory_, defined, 1);
  const auto [at, is_new] = handles_.TryEmplace(handle);
  Hold(memory_, *at, -1);  // nothing, where it is new
  auto& [name, before] = unsent_.emplace_back(handle, std::nullopt);
  if (!is_new) before = std::move(*at);
  *at = std::move(defined);
}

void GroupRuns::Erase(uint64_t handle) {
  Handle* const found = handles_.Find(handle);
  if (found == nullptr) return;
  Hold(memory_, *found, -1);
  unsent_.emplace_back(handle, std::move(*found));
  handles_.Erase(handle);
}

void GroupRuns::LimitMemory(uint64_t bytes) {
  std::lock_guard lock(mutex_);
  const auto most = static_cast<int64_t>(
      std::min(bytes, static_cast<uint64_t>(std::numeric_limits<int64_t>::max())));
  KeepToLimit(most);
}

void GroupRuns::KeepToLimit(int64_t bytes) {
  if (bytes > 0) memory_.bytes = memory_.bytes == 0 ? bytes : std::min(memory_.bytes, bytes);
}

absl::StatusOr<GroupRuns::Planned> GroupRuns::PlanRun(bool may_write, uint64_t seq,
                                                      const proto::Run& run,
                                                      std::unique_lock<std::mutex>& lock) {
  const auto graph = graphs_.find(run.graph_id());
  if (graph == graphs_.end())
    return absl::InvalidArgumentError(
        absl::StrCat("item ", seq, " runs a graph that was not sent in this session"));
  std::shared_ptr<const WrittenGraph> written;
  const auto* const bytes = std::get_if<std::string>(&graph->second.what);
  if (bytes == nullptr) {
    written = std::get<ClientGraph::Refused>(graph->second.what);
  } else {
    DescribeRun(run, key_);
    written = FindKnown(graph->second, key_);
    if (written == nullptr) {
      const GraphUse use = UseOf(run);
      written = sharder_->Find(tenant_, use);
      if (written == nullptr) {
        if (!may_write) return Planned::kMustWrite;
        // Takes its time, for which nobody may wait who holds the relay's lock. Nothing that other
        // calls change meanwhile is read here, and a graph stays.
        const uint64_t generation = generation_;
        lock.unlock();
        written = sharder_->Write(tenant_, use, *bytes);
        lock.lock();
        if (generation != generation_)
          return Planned::kAll;  // for a client that was replaced meanwhile
      }
      if (!written->is_passing) KeepKnown(graph->second, key_, written);
    }
  }
  if (!written->is_clients && !originals_.contains(written->id)) {
    originals_.emplace(written->id, Original{run.graph_id(), written->refused});
    NoteGathers(seq, *written);
    written_bytes_ += written->bytes.size();
    if (originals_.size() > kGroupGraphsMax || written_bytes_ > kGroupGraphBytesMax)
      return absl::ResourceExhaustedError(absl::StrCat(
          "the graphs that were written for the devices of the session are over the limit of ",
          kGroupGraphsMax, " or of ", kGroupGraphBytesMax, " bytes"));
  }
  for (const uint32_t input : run.donate())
    if (input < static_cast<uint32_t>(run.inputs_size())) Erase(run.inputs(input));
  // Of a repeated Run a stacked result is whole, and has another shape.
  std::vector<bool> is_stacked(static_cast<size_t>(run.outputs_size()));
  for (const uint32_t output : run.stack())
    if (output < is_stacked.size()) is_stacked[output] = true;
  for (int i = 0; i < run.outputs_size(); ++i) {
    Handle defined;
    if (static_cast<size_t>(i) < written->results.size()) {
      const WrittenGraph::Result& result = written->results[i];
      if (is_stacked[i]) {
        const double all = static_cast<double>(result.bytes) * run.repeat();
        defined.bytes =
            static_cast<int64_t>(std::min(all, static_cast<double>(limits::kStoredBytesMax)));
      } else {
        defined = {.bytes = result.bytes, .layout = CodeOf(result.layout)};
        if (defined.layout != 0) defined.cut = {written, &result};
      }
    }
    defined.is_state = true;
    Define(run.outputs(i), std::move(defined));
  }
  Item& item = items_[seq] = {.run = std::move(written)};
  for (const uint32_t output : run.fetch())
    if (output < item.run->results.size() && !item.run->results[output].layout.is_whole())
      item.whole[output] = sharder_->Gather(tenant_, mesh_, item.run->results[output]);
  return Planned::kAll;
}

void GroupRuns::Rewrite(proto::ClientFrame& frame,
                        std::vector<std::shared_ptr<const WrittenGraph>>& graphs) {
  std::lock_guard lock(mutex_);
  unsent_.clear();  // GR3
  for (const proto::ClientItem& item : frame.items()) sent_seq_ = std::max(sent_seq_, item.seq());
  const auto send = [&](const std::shared_ptr<const WrittenGraph>& graph) {
    if (sent_.insert(graph->id).second) graphs.push_back(graph);  // GR2
  };
  for (proto::ClientItem& item : *frame.mutable_items()) {
    const auto planned = items_.find(item.seq());
    if (item.seq() == 0 || planned == items_.end()) continue;
    if (planned->second.parts > 0 && item.has_put())
      item.mutable_put()->set_parts(planned->second.parts);
    if (const auto& run = planned->second.run; run != nullptr && item.has_run()) {
      send(run);
      item.mutable_run()->set_graph_id(run->id);
    }
    for (const auto& [index, graph] : planned->second.whole) {
      proto::Whole* whole = nullptr;
      // A client that comes back asks only for the values that it lacks.
      if (item.has_fetch() && index < static_cast<uint32_t>(item.fetch().handles_size()))
        whole = item.mutable_fetch()->add_whole();
      if (item.has_save()) whole = item.mutable_save()->add_whole();
      if (item.has_run()) whole = item.mutable_run()->add_whole();
      if (whole == nullptr) continue;
      send(graph);
      whole->set_index(index);
      whole->set_graph_id(graph->id);
    }
  }
}

void GroupRuns::Restart() {
  std::lock_guard lock(mutex_);
  sent_.clear();
}

void GroupRuns::Done(uint64_t through_seq) {
  std::lock_guard lock(mutex_);
  items_.erase(items_.begin(), items_.upper_bound(through_seq));
}

void GroupRuns::NoteGathers(uint64_t seq, const WrittenGraph& written) {
  const bool has_room = notices_.size() < kGathersTold * kGathersTold;  // one frame, many graphs
  for (size_t i = 0; has_room && i < written.gathers.size(); ++i) {
    const shard::CollectiveUse& use = written.gathers[i];
    proto::Notice& notice = notices_.emplace_back();
    notice.set_kind(proto::Notice::GATHERED);
    notice.set_count(static_cast<uint64_t>(use.bytes));
    notice.set_seq(seq);
    notice.set_node(static_cast<uint32_t>(use.node));
    notice.set_text(absl::StrCat("a value that is cut is needed whole: each device sends ",
                                 use.bytes, " bytes in each Run for ", use.what.substr(0, 60)));
    if (i + 1 == written.gathers.size() && written.gathers_untold > 0)
      absl::StrAppend(notice.mutable_text(), ", and ", written.gathers_untold, " smaller ones");
  }
}

std::vector<proto::Notice> GroupRuns::TakeNotices() {
  std::lock_guard lock(mutex_);
  return std::exchange(notices_, {});
}

std::optional<GroupRuns::Original> GroupRuns::OriginalOf(const std::string& graph_id) {
  std::lock_guard lock(mutex_);
  const auto found = originals_.find(graph_id);
  if (found == originals_.end()) return std::nullopt;
  return found->second;
}

}  // namespace outboard::gateway
