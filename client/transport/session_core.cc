// Invariants
//   C1  Sequence numbers leave 1, 2, 3 ... and the ring holds exactly those above done_seq_.
//   C2  A Graph is emitted before the first Run of an epoch that names it, and once in that epoch
//       unless asked for.
//   C3  A value is complete or failed once; a slot is taken once.
//   C4  Ack never covers a value that is still incomplete.
//   C5  After End every awaited value that is not complete fails with the session's status.
//
//   kNew --Open--> kOpening --OnOpened--> kOpen --Close--> kClosing --End--> kEnded
//                     ^                     |
//                     +-------Resume--- kLost <--OnLinkLost          (any state --End--> kEnded)
#include "client/transport/session_core.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "client/transport/failure.h"
#include "client/transport/items.h"
#include "proto/status_code.h"
#include "proto/version.h"

namespace outboard::transport {

namespace {

constexpr size_t kItemOverheadBytes = 16;  // tag, length and seq around an item, at most
constexpr size_t kNoticesWaitingMax = 16;
constexpr size_t kNoticeBytesMax = 200;

constexpr uint32_t kProtocolOfSave = 2;

}  // namespace

// ---- the program --------------------------------------------------------------------------------

void SessionCore::Open(uint32_t devices) {
  devices_ = devices;
  state_ = State::kOpening;
  proto::ClientItem item;
  proto::Open* open = item.mutable_open();
  wire::SetRange(wire::kProtocolOfClients, *open->mutable_protocol());
  wire::SetRange(wire::kGraphSchemas, *open->mutable_graph_schema());
  open->set_devices(devices);
  open->set_client_name("outboard-cpp");
  if (can_resume()) {
    open->set_resume_token(opened_.resume_token());
    open->set_received_seq(acked_seq_);
  }
  epoch_ = 0;
  EmitItem(std::move(item));
}

bool SessionCore::HasCredit(uint64_t bytes) const {
  if (ring_.empty()) return true;  // whatever the window, one item may always go
  return ring_.size() + (releases_.empty() ? 0 : 1) < items_max_ &&
         bytes_in_flight_ + bytes <= bytes_max_;
}

SessionCore::Entry& SessionCore::Add(proto::ClientItem item) {
  item.set_seq(next_seq_++);
  ring_.push_back({item.seq(), std::move(item), nullptr, nullptr});
  return ring_.back();
}

uint64_t SessionCore::Put(uint64_t handle, uint32_t dtype, std::span<const int64_t> dims,
                          std::shared_ptr<const std::string> bytes) {
  FlushReleases();
  proto::ClientItem item = PutItem(handle, dtype, dims, bytes->size());
  bytes_in_flight_ += bytes->size();
  Entry& entry = Add(std::move(item));
  entry.bytes = std::move(bytes);
  Emit(entry);
  return entry.seq;
}

uint64_t SessionCore::PutBlob(uint64_t handle, uint32_t dtype, std::span<const int64_t> dims,
                              uint64_t total_bytes, std::string_view root) {
  FlushReleases();
  proto::ClientItem item = PutItem(handle, dtype, dims, total_bytes);
  item.mutable_put()->set_blob_root(root.data(), root.size());
  Entry& entry = Add(std::move(item));
  Emit(entry);
  return entry.seq;
}

absl::StatusOr<uint64_t> SessionCore::Run(const RunRequest& request) {
  absl::StatusOr<proto::ClientItem> item = RunItem(request);
  if (!item.ok()) return item.status();
  FlushReleases();
  Entry& entry = Add(*std::move(item));
  entry.graph = request.graph;
  for (uint32_t index : request.fetch) Expect(entry.seq, index);
  ++runs_;
  Emit(entry);
  return entry.seq;
}

absl::StatusOr<uint64_t> SessionCore::Fetch(std::span<const uint64_t> handles) {
  absl::StatusOr<proto::ClientItem> item = FetchItem(handles);
  if (!item.ok()) return item.status();
  FlushReleases();
  Entry& entry = Add(*std::move(item));
  for (uint32_t index = 0; index < handles.size(); ++index) Expect(entry.seq, index);
  Emit(entry);
  return entry.seq;
}

absl::StatusOr<uint64_t> SessionCore::Save(std::string_view name,
                                           std::span<const SaveEntry> entries) {
  if (opened_.protocol() < kProtocolOfSave)
    return absl::UnimplementedError("this gateway keeps no checkpoints: it is of an older version");
  absl::StatusOr<proto::ClientItem> item = SaveItem(name, entries);
  if (!item.ok()) return item.status();
  FlushReleases();
  Entry& entry = Add(*std::move(item));
  saves_.emplace(entry.seq, std::nullopt);
  Emit(entry);
  return entry.seq;
}

void SessionCore::Release(uint64_t handle) {
  if (state_ == State::kEnded) return;
  releases_.push_back(handle);
}

void SessionCore::FlushReleases() {
  for (size_t at = 0; at < releases_.size(); at += wire::kRunHandlesMax) {
    size_t end = std::min(releases_.size(), at + wire::kRunHandlesMax);
    proto::ClientItem item;
    item.mutable_release()->mutable_handles()->Add(releases_.begin() + static_cast<ptrdiff_t>(at),
                                                   releases_.begin() + static_cast<ptrdiff_t>(end));
    Emit(Add(std::move(item)));
  }
  releases_.clear();
}

void SessionCore::Close() {
  if (state_ == State::kEnded || state_ == State::kClosing) return;
  state_ = State::kClosing;
  proto::ClientItem item;
  item.mutable_close();
  EmitItem(std::move(item));
}

// ---- frames out ---------------------------------------------------------------------------------

void SessionCore::EmitItem(proto::ClientItem item) {
  size_t bytes = item.ByteSizeLong() + kItemOverheadBytes;
  if (frames_.empty() || frame_bytes_ + bytes > wire::kFrameBytesMax ||
      frames_.back().epoch() != epoch_ ||
      frames_.back().items_size() >= static_cast<int>(wire::kFrameItemsMax)) {
    frames_.emplace_back().set_epoch(epoch_);
    frame_bytes_ = kItemOverheadBytes;
  }
  frames_.back().add_items()->Swap(&item);
  frame_bytes_ += bytes;
}

void SessionCore::Emit(const Entry& entry) {
  if (state_ != State::kOpen) return;  // the ring keeps it for OnOpened
  if (entry.graph != nullptr && graphs_sent_.insert(entry.item.run().graph_id()).second) {
    EmitGraph(entry.item.run().graph_id(), *entry.graph);
  }
  if (entry.bytes == nullptr) {
    Acknowledge();
    EmitItem(entry.item);
    return;
  }
  size_t at = 0;
  do {
    size_t length = std::min(entry.bytes->size() - at, wire::kPieceBytesMax);
    proto::ClientItem piece = entry.item;
    piece.mutable_put()->set_offset(at);
    piece.mutable_put()->set_data(entry.bytes->data() + at, length);
    EmitItem(std::move(piece));
    at += length;
  } while (at < entry.bytes->size());
}

void SessionCore::EmitGraph(const std::string& id, const std::string& bytes) {
  size_t at = 0;
  do {
    size_t length = std::min(bytes.size() - at, wire::kPieceBytesMax);
    proto::ClientItem item;
    proto::Graph* graph = item.mutable_graph();
    graph->set_id(id);
    graph->set_total_bytes(bytes.size());
    graph->set_offset(at);
    graph->set_data(bytes.data() + at, length);
    EmitItem(std::move(item));
    at += length;
  } while (at < bytes.size());
}

// Rides with the next item; a program that only computes has nothing to acknowledge.
void SessionCore::Acknowledge() {
  uint64_t seq = done_seq_;
  if (!incomplete_.empty()) seq = std::min(seq, incomplete_.begin()->first - 1);
  if (seq <= acked_seq_) return;
  acked_seq_ = seq;
  if (!std::exchange(ack_due_, false))
    return;  // no value or failure came: nothing that the executor keeps
  proto::ClientItem item;
  item.mutable_ack()->set_through_seq(seq);
  EmitItem(std::move(item));
}

std::vector<proto::ClientFrame> SessionCore::TakeFrames() {
  frame_bytes_ = 0;
  return std::exchange(frames_, {});
}

// ---- frames in ----------------------------------------------------------------------------------

void SessionCore::OnFrame(proto::ServerFrame& frame) {
  for (proto::ServerItem& item : *frame.mutable_items()) {
    if (item.has_opened()) {
      epoch_ = frame.epoch();
      OnOpened(item.opened());
      continue;
    }
    // A Failed that ends the session may come before there is an epoch.
    bool ends = item.has_failed() && item.failed().seq() == 0;
    if (frame.epoch() != epoch_ && !ends) continue;
    switch (item.kind_case()) {
      case proto::ServerItem::kDone: OnDone(*item.mutable_done()); break;
      case proto::ServerItem::kFailed: OnFailed(item.failed()); break;
      case proto::ServerItem::kNeed: OnNeed(item.need()); break;
      case proto::ServerItem::kSaved: OnSaved(item.saved()); break;
      case proto::ServerItem::kCredit:
        items_max_ = std::max(1u, item.credit().items_in_flight_max());
        bytes_max_ = item.credit().bytes_in_flight_max();
        break;
      case proto::ServerItem::kNotice: OnNotice(item.notice()); break;
      default: break;  // what a newer server adds is not ours to understand
    }
  }
}

void SessionCore::OnOpened(const proto::Opened& opened) {
  if (state_ == State::kEnded) return;
  opened_ = opened;
  if (opened.has_credit()) {
    items_max_ = std::max(1u, opened.credit().items_in_flight_max());
    bytes_max_ = opened.credit().bytes_in_flight_max();
  }
  if (state_ != State::kClosing) state_ = State::kOpen;
  DropThrough(opened.applied_seq());
  graphs_sent_.clear();
  for (const Entry& entry : ring_) Emit(entry);
}

void SessionCore::DropThrough(uint64_t seq) {
  done_seq_ = std::max(done_seq_, std::min(seq, last_seq()));
  while (!ring_.empty() && ring_.front().seq <= done_seq_) {
    if (ring_.front().bytes != nullptr) bytes_in_flight_ -= ring_.front().bytes->size();
    runs_done_ += ring_.front().item.has_run();
    ring_.pop_front();
  }
}

void SessionCore::OnDone(proto::Done& done) {
  for (proto::Value& value : *done.mutable_values()) OnValue(value);
  DropThrough(done.through_seq());
  device_time_us_ = std::max(device_time_us_, done.device_time_us());
  kernels_ = std::max(kernels_, done.kernels_launched());
  cost_micro_usd_ = std::max(cost_micro_usd_, done.cost_micro_usd());
  seconds_billed_ = std::max(seconds_billed_, done.seconds_billed());
}

void SessionCore::Expect(uint64_t seq, uint32_t index) {
  slots_.try_emplace({seq, index});
  incomplete_.insert({seq, index});
}

void SessionCore::OnValue(proto::Value& piece) {
  ValueKey key{piece.seq(), piece.index()};
  auto it = slots_.find(key);
  if (it == slots_.end() || it->second.complete) return;
  Slot& slot = it->second;
  if (piece.offset() == 0) {
    slot.value.dtype = piece.dtype();
    slot.value.dims.assign(piece.dims().begin(), piece.dims().end());
    slot.value.bytes.clear();
    slot.total_bytes = piece.total_bytes();
    slot.value.bytes = std::move(*piece.mutable_data());  // no reserve: total_bytes is only a claim
  } else {
    if (piece.offset() != slot.value.bytes.size()) return;
    slot.value.bytes += piece.data();
  }
  if (slot.value.bytes.size() < slot.total_bytes) return;
  slot.complete = true;
  incomplete_.erase(key);
  ack_due_ = true;
  if (slot.forgotten) slots_.erase(it);
}

void SessionCore::OnFailed(const proto::Failed& failed) {
  std::string message = failed.message();
  if (!failed.op().empty())
    absl::StrAppend(&message, " (node ", failed.node(), ", ", failed.op(), ")");
  absl::Status status(wire::CodeFromWire(failed.code()), message);
  if (status.ok()) status = absl::InternalError("a failure without a code");
  if (failed.seq() == 0) {
    End(std::move(status));
    return;
  }
  Failure failure = {failed.cause_seq() == 0 ? failed.seq() : failed.cause_seq(), {}};
  if (!failed.op().empty()) failure.node = failed.node();
  status = WithFailure(std::move(status), failure);
  if (first_failure_.ok()) first_failure_ = status;
  ack_due_ = true;
  if (auto save = saves_.find(failed.seq()); save != saves_.end() && !save->second)
    save->second = status;
  auto it = slots_.lower_bound({failed.seq(), 0});
  while (it != slots_.end() && it->first.first == failed.seq()) {
    Slot& slot = it->second;
    if (!slot.complete) {
      slot.complete = true;
      slot.status = status;
      incomplete_.erase(it->first);
    }
    it = slot.forgotten ? slots_.erase(it) : std::next(it);
  }
}

void SessionCore::OnSaved(const proto::Saved& saved) {
  auto it = saves_.find(saved.seq());
  if (it != saves_.end() && !it->second)
    it->second = Saved{saved.total_bytes(), saved.sent_bytes()};
}

void SessionCore::OnNeed(const proto::Need& need) {
  for (const std::string& id : need.graph_ids()) {
    for (const Entry& entry : ring_) {
      if (entry.graph == nullptr || entry.item.run().graph_id() != id) continue;
      graphs_sent_.insert(id);
      EmitGraph(id, *entry.graph);
      break;
    }
  }
}

// Others' text on the user's terminal: short, and nothing that a terminal obeys.
void SessionCore::OnNotice(const proto::Notice& notice) {
  if (notices_.size() >= kNoticesWaitingMax) return;
  std::string line = notice.text().substr(0, kNoticeBytesMax);
  std::replace_if(line.begin(), line.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  if (notice.kind() == proto::Notice::QUEUED && notice.count() > 0)
    absl::StrAppend(&line, " (", notice.count(), " sessions are before this one)");
  if (!line.empty()) notices_.push_back(std::move(line));
}

void SessionCore::OnLinkLost() {
  if (state_ == State::kOpen || state_ == State::kOpening) state_ = State::kLost;
  frames_.clear();
}

void SessionCore::Resume() { Open(devices_); }

void SessionCore::End(absl::Status status) {
  if (state_ == State::kEnded) return;
  state_ = State::kEnded;
  if (status.ok()) {
    status_ = absl::FailedPreconditionError("the session is closed");
  } else if (runs_ == 0) {
    status_ = std::move(status);
  } else {
    status_ = absl::Status(status.code(), absl::StrCat(status.message(), " (", runs_done_, " of ",
                                                       runs_, " runs were done)"));
  }
  for (const ValueKey& key : incomplete_) {
    Slot& slot = slots_[key];
    slot.complete = true;
    slot.status = status_;
  }
  incomplete_.clear();
  for (auto& [seq, saved] : saves_)
    if (!saved) saved = status_;
  ring_.clear();
  frames_.clear();
  releases_.clear();
  bytes_in_flight_ = 0;
}

// ---- values -------------------------------------------------------------------------------------

bool SessionCore::Ready(uint64_t seq, uint32_t index) const {
  auto it = slots_.find({seq, index});
  return it == slots_.end() || it->second.forgotten || it->second.complete;
}

absl::StatusOr<Value> SessionCore::Take(uint64_t seq, uint32_t index) {
  auto it = slots_.find({seq, index});
  if (it == slots_.end() || it->second.forgotten) {
    return absl::FailedPreconditionError(absl::StrCat("value ", index, " of item ", seq,
                                                      " was not asked for, or was taken already"));
  }
  Slot slot = std::move(it->second);
  slots_.erase(it);
  if (!slot.status.ok()) return slot.status;
  return std::move(slot.value);
}

void SessionCore::Forget(uint64_t seq, uint32_t index) {
  auto it = slots_.find({seq, index});
  if (it == slots_.end()) return;
  if (it->second.complete) {
    slots_.erase(it);
  } else {
    it->second.forgotten = true;
  }
}

bool SessionCore::SaveReady(uint64_t seq) const {
  auto it = saves_.find(seq);
  return it == saves_.end() || it->second.has_value();
}

absl::StatusOr<Saved> SessionCore::TakeSaved(uint64_t seq) {
  auto it = saves_.find(seq);
  if (it == saves_.end())
    return absl::FailedPreconditionError(
        absl::StrCat("item ", seq, " is no Save, or was awaited already"));
  absl::StatusOr<Saved> saved = *std::move(it->second);
  saves_.erase(it);
  return saved;
}

absl::Status SessionCore::TakeFirstFailure() {
  return std::exchange(first_failure_, absl::OkStatus());
}

std::vector<std::string> SessionCore::TakeNotices() { return std::exchange(notices_, {}); }

void SessionCore::FillStats(Stats& stats) const {
  stats.runs = runs_;
  stats.device_time_us = device_time_us_;
  stats.kernels_launched = kernels_;
  stats.cost_micro_usd = cost_micro_usd_;
  stats.seconds_billed = seconds_billed_;
  stats.price_per_hour_micro_usd =
      opened_.price_per_hour_micro_usd() * std::max(1u, opened_.devices());
  stats.device = absl::StrCat(opened_.device().kind(), ": ", opened_.device().name());
}

}  // namespace outboard::transport
