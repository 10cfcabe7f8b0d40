// How the arrays of a session lie behind its last snapshot, for a gateway that is started again.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/ir/limits.h"
#include "gateway/base/limits.h"
#include "gateway/groups/group_runs.h"

namespace outboard::gateway {

namespace {
// One is asked for at a time; the one before may become whole late.
constexpr size_t kNotedMax = 3;
}  // namespace

proto::GroupState GroupRuns::DescribeSpread() const {
  proto::GroupState state;
  for (const int64_t size : mesh_.sizes) state.add_mesh(static_cast<uint32_t>(size));
  state.set_spread(std::string(shard::Name(spread_)));
  state.set_has_parts(true);
  state.set_memory_bytes(static_cast<uint64_t>(memory_.bytes));
  state.set_operations_per_s(speeds_.operations_per_s);
  state.set_link_bytes_per_s(speeds_.link_bytes_per_s);
  state.set_collective_s(speeds_.collective_s);
  if (speeds_.inner_axes != 0) {
    state.set_inner_axes(speeds_.inner_axes);
    state.set_inner_bytes_per_s(speeds_.inner_bytes_per_s);
    state.set_inner_collective_s(speeds_.inner_collective_s);
  }
  state.set_gathers_fetched(gathers_fetched_);
  return state;
}

proto::GroupState GroupRuns::Describe() {
  std::lock_guard lock(mutex_);
  return DescribeSpread();
}

uint64_t GroupRuns::sent_seq() {
  std::lock_guard lock(mutex_);
  return sent_seq_;
}

void GroupRuns::NoteSnapshot(uint64_t seq) {
  std::lock_guard lock(mutex_);
  if (seq != sent_seq_ || handles_.size() > kGroupStateArraysMax) return;
  proto::GroupState state = DescribeSpread();
  state.set_seq(seq);
  const auto describe = [&state](uint64_t name, const Handle& handle) {
    proto::GroupArray& array = *state.add_arrays();
    array.set_handle(name);
    array.set_bytes(static_cast<uint64_t>(handle.bytes));
    array.set_is_state(handle.is_state);
    if (handle.cut == nullptr) return;
    array.set_dtype(static_cast<uint32_t>(handle.cut->dtype));
    for (const int64_t dim : handle.cut->dims) array.add_dims(static_cast<uint64_t>(dim));
    for (const int64_t dim : handle.cut->layout.cut) array.add_cut(static_cast<int32_t>(dim));
  };
  // A frame may be planned in this moment, and is not sent: what it changed counts as before.
  std::map<uint64_t, const std::optional<Handle>*> before;
  for (const auto& [name, was] : unsent_) before.try_emplace(name, &was);
  handles_.ForEach([&](uint64_t name, const Handle& handle) {
    if (!before.contains(name)) describe(name, handle);
  });
  for (const auto& [name, was] : before)
    if (was->has_value()) describe(name, **was);
  if (state.ByteSizeLong() > kGroupStateBytesMax) return;
  noted_[seq] = std::move(state);
  if (noted_.size() > kNotedMax) noted_.erase(noted_.begin());
}

std::optional<proto::GroupState> GroupRuns::TakeNoted(uint64_t seq) {
  std::lock_guard lock(mutex_);
  std::optional<proto::GroupState> taken;
  if (const auto found = noted_.find(seq); found != noted_.end()) taken = std::move(found->second);
  noted_.erase(noted_.begin(), noted_.upper_bound(seq));
  durable_ = taken;
  return taken;
}

// It comes from the gateway's own disk, but another version wrote it.
absl::Status GroupRuns::ResumeArray(const proto::GroupArray& array) {
  const auto damaged = [&](const char* what) {
    return absl::DataLossError(absl::StrCat("array ", array.handle(), " has ", what));
  };
  if (array.bytes() > static_cast<uint64_t>(limits::kStoredBytesMax))
    return damaged("too many bytes");
  Handle handle{.bytes = static_cast<int64_t>(array.bytes())};
  if (array.cut_size() > 0) {
    WrittenGraph::Result stored{.bytes = handle.bytes};
    if (array.dtype() == 0 || array.dtype() >= static_cast<uint32_t>(kDTypeCount))
      return damaged("no type");
    if (array.dims_size() > limits::kRankMax) return damaged("too many dimensions");
    stored.dtype = static_cast<DType>(array.dtype());
    Shape shape;
    for (const uint64_t dim : array.dims()) {
      if (dim > static_cast<uint64_t>(limits::kDimMax)) return damaged("a dimension too long");
      stored.dims.push_back(static_cast<int64_t>(dim));
      shape.push_back(Dim(static_cast<int64_t>(dim)));
    }
    stored.layout.cut.assign(array.cut().begin(), array.cut().end());
    if (!shard::CheckLayout(mesh_, stored.layout, shape).ok()) return damaged("no such layout");
    handle = HandleOf(std::make_shared<const WrittenGraph::Result>(std::move(stored)));
  }
  handle.is_state = array.is_state();
  Define(array.handle(), std::move(handle));
  return absl::OkStatus();
}

absl::Status GroupRuns::Resume(const proto::GroupState& state) {
  std::lock_guard lock(mutex_);
  durable_ = state;
  return ResumeAll(state);
}

absl::Status GroupRuns::ResumeAll(const proto::GroupState& state) {
  if (static_cast<size_t>(state.arrays_size()) > kGroupStateArraysMax)
    return absl::DataLossError(absl::StrCat(state.arrays_size(), " arrays"));
  memory_ = {};
  memory_.bytes = static_cast<int64_t>(
      std::min(state.memory_bytes(), static_cast<uint64_t>(limits::kStoredBytesMax)));
  speeds_ = {.operations_per_s = state.operations_per_s(),
             .link_bytes_per_s = state.link_bytes_per_s(),
             .collective_s = state.collective_s()};
  if (state.inner_axes() != 0) {
    speeds_.inner_axes = static_cast<uint8_t>(state.inner_axes());
    speeds_.inner_bytes_per_s = state.inner_bytes_per_s();
    speeds_.inner_collective_s = state.inner_collective_s();
  }
  if (!(speeds_.operations_per_s > 0 && speeds_.link_bytes_per_s > 0 && speeds_.collective_s > 0 &&
        speeds_.inner_bytes_per_s > 0 && speeds_.inner_collective_s > 0))
    speeds_ = {};
  for (const proto::GroupArray& array : state.arrays()) {
    absl::Status status = ResumeArray(array);
    if (!status.ok()) return status;
  }
  planned_seq_ = sent_seq_ = state.seq();
  unsent_.clear();
  return absl::OkStatus();
}

// GR3.
void GroupRuns::TakeBackUnsent() {
  std::vector<std::pair<uint64_t, std::optional<Handle>>> taken = std::exchange(unsent_, {});
  for (auto change = taken.rbegin(); change != taken.rend(); ++change) {
    if (change->second.has_value())
      Define(change->first, *std::move(change->second));
    else
      Erase(change->first);
  }
  unsent_.clear();
  planned_seq_ = std::min(planned_seq_, sent_seq_);
  items_.erase(items_.upper_bound(planned_seq_), items_.end());
}

uint64_t GroupRuns::BeginGeneration() {
  std::lock_guard lock(mutex_);
  TakeBackUnsent();
  return ++generation_;
}

bool GroupRuns::GoOnBehind(uint64_t seq) {
  std::lock_guard lock(mutex_);
  if (seq == planned_seq_) return true;
  const bool is_known = seq == 0 || (durable_.has_value() && durable_->seq() == seq);
  if (!is_known || seq > planned_seq_) return false;
  handles_.Clear();
  items_.clear();
  noted_.clear();
  memory_.held_bytes = memory_.held_cut_bytes = 0;
  planned_seq_ = sent_seq_ = 0;
  unsent_.clear();
  if (seq == 0) return true;
  // The snapshot is from before the client that enters said what it allows.
  const int64_t memory_bytes_max = memory_.bytes;
  if (!ResumeAll(*durable_).ok()) return false;
  KeepToLimit(memory_bytes_max);
  return true;
}

void GroupRuns::DescribeWhole(proto::Kept& kept) {
  std::lock_guard lock(mutex_);
  for (proto::Kept::Entry& entry : *kept.mutable_entries()) {
    const Handle* const found = handles_.Find(entry.handle());
    if (entry.dtype() == 0 || found == nullptr || found->cut == nullptr) continue;
    entry.clear_dims();
    for (const int64_t dim : found->cut->dims) entry.add_dims(static_cast<uint64_t>(dim));
  }
}

}  // namespace outboard::gateway
