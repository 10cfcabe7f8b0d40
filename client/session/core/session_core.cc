// Invariants
//   C1  Sequence numbers leave 1, 2, 3 ... and the resend buffer holds exactly those that may have
//       to be sent again: above durable_seq_ where the session is recoverable, above done_seq_
//       where it is not.
//   C2  A Graph is emitted before the first Run of an epoch that names it, and once in that epoch
//       unless asked for.
//   C3  A value is complete or failed once; it is taken once. An item's outcome is reported
//       once, however often the item is sent.
//   C4  Ack never covers a value that is still incomplete.
//   C5  After End every awaited answer that is not complete fails with the session's status.
//   C6  done_seq_ falls only where another worker begins with a snapshot (GoBackTo), and then every
//       item above is in the resend buffer, or the session ends.
//   C7  Without a link there are no frames: what an old link still hands over in kLost changes
//       nothing, but that the session may end.
//
//   kNew --Open--> kOpening --OnOpened--> kOpen --Close--> kClosing --End--> kEnded
//                     ^                   |  ^ OnOpened of a later epoch: the worker is another
//                     +-------Resume--- kLost <--OnLinkLost          (any state --End--> kEnded)
//                     +-------Resume--- kStopped <--OnFailed: nobody pays, and the state is kept
//
// kStopped differs from kLost in what the program sees: its calls fail with status(). Values that
// it awaited can be awaited again after Resume.
#include "client/session/core/session_core.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/printable.h"
#include "client/session/core/failure.h"
#include "client/session/core/outgoing_items.h"
#include "wire/version.h"

namespace outboard::session {

namespace {

constexpr size_t kNoticesWaitingMax = 16;
constexpr size_t kNoticeBytesMax = 1000;  // a driver's error and a kernel's name fit
constexpr size_t kClassBytesMax = 80;  // of each of two in a notice
constexpr uint32_t kProtocolOfSave = 2;

// Twice of what makes the executor take a snapshot: while it does, the program goes on.
constexpr uint64_t kResendItemsMax = 2 * uint64_t{wire::kNotDurableItemsMax};
constexpr uint64_t kResendBytesMax = 2 * wire::kNotDurableBytesMax;
// They have to fit into an Open: entries with their tag and length there.
constexpr size_t kKernelUsesBytesMax = wire::kOpenBytesMax - 1024, kKernelUseOverheadBytes = 8;

size_t BytesOf(const proto::KernelUse& entry) {
  return entry.ByteSizeLong() + kKernelUseOverheadBytes;
}

// As exact as a guess is: "40 s", "12 min", "3 h".
std::string RoughDuration(uint32_t seconds) {
  if (seconds < 90) return absl::StrCat(seconds, " s");
  if (seconds < 90 * 60) return absl::StrCat((seconds + 30) / 60, " min");
  return absl::StrCat((seconds + 1800) / 3600, " h");
}

bool IsRun(const proto::ClientItem& item) { return item.has_run(); }

// An item that is sent again asks for nothing that is here already.
void AskOnlyForMissing(const PendingAnswers& awaited, proto::ClientItem& item) {
  const uint64_t seq = item.seq();
  if (item.has_run()) {
    auto& fetch = *item.mutable_run()->mutable_fetch();
    fetch.erase(std::remove_if(fetch.begin(), fetch.end(),
                               [&](uint32_t index) { return !awaited.Misses(seq, index); }),
                fetch.end());
  } else if (item.has_fetch()) {
    bool misses = false;  // indices count in the list, so that it is all or nothing
    for (int i = 0; i < item.fetch().handles_size(); ++i)
      misses |= awaited.Misses(seq, static_cast<uint32_t>(i));
    if (!misses) item.mutable_fetch()->clear_handles();
  }
}

}  // namespace

// ---- the program --------------------------------------------------------------------------------

void SessionCore::Open(uint32_t devices) {
  devices_ = devices;
  state_ = State::kOpening;
  proto::ClientItem item;
  proto::Open* open = item.mutable_open();
  wire::SetRange(wire::kProtocolOfClients, *open->mutable_protocol());
  wire::SetRange(wire::kGraphSchemas, *open->mutable_graph_schema());
  open->set_devices(std::max(1u, devices));
  open->mutable_mesh()->Assign(mesh_.begin(), mesh_.end());
  open->set_spread(spread_);
  open->set_client_name("outboard-cpp");
  open->set_trace(trace_);
  if (max_cost_micro_usd_.has_value()) open->set_max_cost_micro_usd(*max_cost_micro_usd_);
  if (queue_ms_max_.has_value()) open->set_queue_ms_max(*queue_ms_max_);
  if (!gang_.empty()) {
    open->set_gang(gang_);
    open->set_gang_size(gang_size_);
  }
  open->set_device_class(device_class_);
  open->set_device_memory_bytes_min(device_memory_bytes_);
  if (!can_resume()) {
    open->set_name(name_);
    open->set_attach(attach_);
    open->set_fork_of(fork_of_);
    open->set_fork_seq(fork_seq_);
    begins_ = is_new_client_ = !attach_.empty() || !fork_of_.empty();
    if (is_new_client_ && devices_ == 0) open->clear_devices();  // as many as there are
    open->set_is_new_client(is_new_client_);
  } else {
    open->set_resume_token(opened_.resume_token());
    open->set_received_seq(acked_seq_);
    for (const auto& [key, entry] : kernel_uses_) *open->add_kernel_uses() = entry;
  }
  out_.Restart(0);
  out_.Add(std::move(item));
}

bool SessionCore::HasWindow(uint64_t bytes) const {
  if (AwaitsSnapshot(bytes)) return false;
  if (InFlight() == 0) return true;  // whatever the window, one item may always go
  return InFlight() + (releases_.empty() ? 0 : 1) <
             std::min<uint64_t>(granted_items_max_, send_window_.items()) &&
         bytes_in_flight_ + bytes <= granted_bytes_max_;
}

bool SessionCore::AwaitsSnapshot(uint64_t bytes) const {
  return opened_.recoverable() && resend_buffer_.dropped_seq() < done_seq_ &&
         (resend_buffer_.size() >= kResendItemsMax ||
          resend_buffer_.put_bytes() + bytes > kResendBytesMax);
}

void SessionCore::GiveUpRecovery() { resend_buffer_.DropThrough(done_seq_); }

ResendBuffer::Entry& SessionCore::Add(proto::ClientItem item, ResendBuffer::Entry entry) {
  item.set_seq(last_seq() + 1);
  send_window_.OnSent(item.seq(), InFlight(), now_);
  entry.is_run = IsRun(item);
  entry.item = item.SerializeAsString();
  bytes_in_flight_ += entry.put_bytes();
  ResendBuffer::Entry& added = resend_buffer_.Add(std::move(entry));
  if (!MayEmit()) return added;  // the resend buffer keeps it for OnOpened
  if (added.is_run) EmitGraphOf(added, item.run().graph_id());
  if (added.bytes != nullptr) {
    out_.AddPut(item, *added.bytes);
  } else {
    Acknowledge();
    out_.Add(std::move(item));
  }
  return added;
}

void SessionCore::SendAgain(const ResendBuffer::Entry& entry) {
  proto::ClientItem item;
  if (!item.ParseFromString(entry.item))
    return End(absl::InternalError("an item of the session could not be parsed"));
  if (entry.is_run) EmitGraphOf(entry, item.run().graph_id());
  if (entry.bytes != nullptr) return out_.AddPut(item, *entry.bytes);
  AskOnlyForMissing(pending_answers_, item);
  out_.Add(std::move(item));
}

void SessionCore::EmitGraphOf(const ResendBuffer::Entry& entry, const std::string& id) {
  if (graphs_sent_.insert(id).second) out_.AddGraph(id, *entry.graph);
}

uint64_t SessionCore::Put(uint64_t handle, uint32_t dtype, std::span<const int64_t> dims,
                          std::shared_ptr<const std::string> bytes) {
  FlushReleases();
  proto::ClientItem item = PutItem(handle, dtype, dims, bytes->size());
  ResendBuffer::Entry entry;
  entry.bytes = std::move(bytes);
  return Add(std::move(item), std::move(entry)).seq;
}

uint64_t SessionCore::PutBlob(uint64_t handle, uint32_t dtype, std::span<const int64_t> dims,
                              uint64_t total_bytes, std::string_view root) {
  FlushReleases();
  proto::ClientItem item = PutItem(handle, dtype, dims, total_bytes);
  item.mutable_put()->set_blob_root(root.data(), root.size());
  return Add(std::move(item), {}).seq;
}

absl::StatusOr<uint64_t> SessionCore::Run(const RunRequest& request) {
  absl::StatusOr<proto::ClientItem> item = RunItem(request);
  if (!item.ok()) return item.status();
  const std::vector<uint64_t> ended = kept_handles_.OnRun(request, *item->mutable_run());
  FlushReleases();
  releases_ = ended;  // this Run may read them
  for (uint32_t index : request.fetch) pending_answers_.Expect(last_seq() + 1, index);
  ++runs_;
  steps_ += std::max(1u, request.repeat);
  ResendBuffer::Entry entry;
  entry.graph = request.graph;
  const uint64_t seq = Add(*std::move(item), std::move(entry)).seq;
  provenance_.Remember(seq, request.origin);
  return seq;
}

absl::StatusOr<uint64_t> SessionCore::Fetch(std::span<const uint64_t> handles) {
  absl::StatusOr<proto::ClientItem> item = FetchItem(handles);
  if (!item.ok()) return item.status();
  FlushReleases();
  for (uint32_t index = 0; index < handles.size(); ++index)
    pending_answers_.Expect(last_seq() + 1, index);
  return Add(*std::move(item), {}).seq;
}

absl::StatusOr<uint64_t> SessionCore::Save(std::string_view name,
                                           std::span<const SaveEntry> entries) {
  if (opened_.protocol() == 0)
    return absl::FailedPreconditionError("a save before the session is open");
  if (opened_.protocol() < kProtocolOfSave)
    return absl::UnimplementedError(
        "this gateway is of an older version and stores no checkpoints");
  absl::StatusOr<proto::ClientItem> item = SaveItem(name, entries);
  if (!item.ok()) return item.status();
  FlushReleases();
  pending_answers_.ExpectSaved(last_seq() + 1);
  return Add(*std::move(item), {}).seq;
}

void SessionCore::Release(uint64_t handle) {
  if (state_ == State::kEnded || kept_handles_.Release(handle)) return;
  releases_.push_back(handle);
}

void SessionCore::FlushReleases() {
  const std::vector<uint64_t> releases = std::exchange(releases_, {});
  for (size_t at = 0; at < releases.size(); at += wire::kRunHandlesMax) {
    const size_t end = std::min(releases.size(), at + wire::kRunHandlesMax);
    proto::ClientItem item;
    item.mutable_release()->mutable_handles()->Add(releases.begin() + static_cast<ptrdiff_t>(at),
                                                   releases.begin() + static_cast<ptrdiff_t>(end));
    Add(std::move(item), {});
  }
}

void SessionCore::Close() {
  leaves_ = false;
  proto::ClientItem item;
  item.mutable_close();
  EndStream(std::move(item));
}

void SessionCore::Leave() {
  leaves_ = true;
  proto::ClientItem item;
  item.mutable_leave();
  EndStream(std::move(item));
}

void SessionCore::EndStream(proto::ClientItem item) {
  if (state_ == State::kEnded || state_ == State::kClosing) return;
  state_ = State::kClosing;
  out_.Add(std::move(item));
}

// Rides with the next item; a program that only computes has nothing to acknowledge.
void SessionCore::Acknowledge() {
  const uint64_t seq = std::min(done_seq_, pending_answers_.first_incomplete_seq() - 1);
  if (seq <= acked_seq_) return;
  acked_seq_ = seq;
  if (!std::exchange(ack_due_, false))
    return;  // no value or failure came: nothing that the executor keeps
  proto::ClientItem item;
  item.mutable_ack()->set_through_seq(seq);
  out_.Add(std::move(item));
}

// ---- frames in ----------------------------------------------------------------------------------

void SessionCore::OnFrame(proto::ServerFrame& frame) {
  for (proto::ServerItem& item : *frame.mutable_items()) {
    if (state_ == State::kEnded) return;
    const bool ends = item.has_failed() && item.failed().seq() == 0;
    const bool has_link = state_ != State::kLost && state_ != State::kStopped;
    if (!has_link && !ends) continue;  // comes again after Resume
    if (item.has_opened()) {
      // On a stream that is open already, only what is later.
      if (state_ == State::kOpening || frame.epoch() > out_.epoch())
        OnOpened(item.opened(), frame.epoch());
      continue;
    }
    // A Failed that ends the session may come before there is an epoch.
    if (frame.epoch() != out_.epoch() && !ends) continue;
    switch (item.kind_case()) {
      case proto::ServerItem::kDone: OnDone(*item.mutable_done()); break;
      case proto::ServerItem::kFailed: OnFailed(item.failed()); break;
      case proto::ServerItem::kNeed: OnNeed(item.need()); break;
      case proto::ServerItem::kSaved: pending_answers_.OnSaved(item.saved()); break;
      case proto::ServerItem::kWindow:
        granted_items_max_ = std::max(1u, item.window().items_in_flight_max());
        granted_bytes_max_ = item.window().bytes_in_flight_max();
        break;
      case proto::ServerItem::kNotice: OnNotice(item.notice()); break;
      case proto::ServerItem::kKept: OnKept(item.kept()); break;
      default: break;  // what a newer server adds is not ours to understand
    }
  }
}

void SessionCore::OnOpened(const proto::Opened& opened, uint64_t epoch) {
  const std::string& was = opened_.device().hardware_class();
  const std::string& is = opened.device().hardware_class();
  if (!was.empty() && !is.empty() && was != is)
    AddNotice(absl::StrCat("the session is on another kind of device now: results may differ in ",
                           "their last bits (", is.substr(0, kClassBytesMax), ", before: ",
                           was.substr(0, kClassBytesMax), ")"));
  opened_ = opened;
  queue_line_.reset();
  queue_line_is_new_ = false;
  if (devices_ == 0) devices_ = begins_ ? std::max(1u, opened.devices()) : 1;
  if (std::max(1u, opened.devices()) != devices_)
    return End(absl::FailedPreconditionError(
        absl::StrCat("asked for ", devices_, " devices and got ", opened.devices(),
                     ": the gateway is of an older version, or the address is not a gateway's")));
  // A gateway from before this bound would let the session cost anything.
  if (max_cost_micro_usd_.has_value() && opened.max_cost_micro_usd() != *max_cost_micro_usd_)
    return End(absl::FailedPreconditionError(
        "the gateway does not bound what a session costs: it is of an older version, or the "
        "address is not a gateway's; unset CLOUD_MAX_COST to run without a bound"));
  if (!device_class_.empty() && opened.price_class() != device_class_)
    return End(absl::FailedPreconditionError(
        "the gateway does not know classes of devices: it is of an older version, or the address "
        "is not a gateway's; unset CLOUD_CLASS to take any device"));
  if (opened.has_window()) {
    granted_items_max_ = std::max(1u, opened.window().items_in_flight_max());
    granted_bytes_max_ = opened.window().bytes_in_flight_max();
  }
  out_.Restart(epoch);
  graphs_sent_.clear();
  pending_answers_.Restart();
  if (is_new_client_ && !opened.keeps())
    return End(absl::UnimplementedError(
        "the gateway or the session's worker is of an older version, where a session cannot be "
        "entered by another client"));
  if (is_new_client_ && !begins_)
    return End(absl::UnavailableError(
        "the session's worker was lost while the session was entered; enter it again"));
  if (std::exchange(begins_, false)) BeginAt(opened.applied_seq());
  if (!GoBackTo(opened.applied_seq())) return;
  DropWhatIsSafe();
  send_window_.OnRestart(done_seq_, now_);
  for (const ResendBuffer::Entry& entry : resend_buffer_)
    if (entry.seq > done_seq_) SendAgain(entry);
  if (state_ == State::kClosing) {
    state_ = State::kOpen;
    leaves_ ? Leave() : Close();
  } else {
    state_ = State::kOpen;
  }
}

// What is applied, as whoever serves the session now says. False: it ends, for what is missing
// there is not here either.
bool SessionCore::GoBackTo(uint64_t seq) {
  seq = std::min(seq, last_seq());
  if (seq >= done_seq_) {
    DoneThrough(seq);
    return true;
  }
  if (seq < resend_buffer_.dropped_seq()) {
    End(absl::UnavailableError(absl::StrCat(
        "the worker was lost; what there is of the session is up to item ", seq,
        ", and this program keeps what came after item ", resend_buffer_.dropped_seq())));
    return false;
  }
  if (kernel_uses_lack_seq_ > durable_seq_) {
    End(absl::UnavailableError(
        "the worker was lost, and which kernels it used is more than another can be told"));
    return false;
  }
  for (uint64_t again = seq + 1; again <= done_seq_; ++again)
    bytes_in_flight_ += resend_buffer_.at(again).put_bytes();
  done_seq_ = seq;
  return true;
}

void SessionCore::DoneThrough(uint64_t seq) {
  for (seq = std::min(seq, last_seq()); done_seq_ < seq; ++done_seq_)
    bytes_in_flight_ -= resend_buffer_.at(done_seq_ + 1).put_bytes();
}

void SessionCore::DropWhatIsSafe() {
  resend_buffer_.DropThrough(opened_.recoverable() ? std::min(durable_seq_, done_seq_) : done_seq_);
  // An item that is not sent again can fail again in words only: where an Ack was lost.
  failed_.erase(failed_.begin(),
                failed_.upper_bound(std::min(resend_buffer_.dropped_seq(), acked_seq_)));
}

void SessionCore::OnDone(proto::Done& done) {
  for (proto::Value& value : *done.mutable_values()) {
    large_values_ |= value.total_bytes() > wire::kInlineValueBytesMax;
    ack_due_ |= pending_answers_.OnValue(value);
  }
  DoneThrough(done.through_seq());
  send_window_.OnDone(done_seq_, now_);
  if (opened_.recoverable())
    for (const proto::KernelUse& entry : done.kernel_uses()) AddKernelUse(entry);
  durable_seq_ = std::max(durable_seq_, std::min(done.durable_seq(), done_seq_));
  while (!kernel_uses_.empty() && kernel_uses_.begin()->first.first <= durable_seq_) {
    kernel_uses_bytes_ -= BytesOf(kernel_uses_.begin()->second);
    kernel_uses_.erase(kernel_uses_.begin());
  }
  DropWhatIsSafe();
  device_time_us_ = std::max(device_time_us_, done.device_time_us());
  kernels_ = std::max(kernels_, done.kernels_launched());
  operations_ = std::max(operations_, done.operations());
  bytes_accessed_ = std::max(bytes_accessed_, done.bytes_accessed());
  cost_micro_usd_ = std::max(cost_micro_usd_, done.cost_micro_usd());
  // A gateway from before milliseconds says whole seconds alone.
  billed_ms_ = std::max({billed_ms_, done.billed_ms(), 1000 * done.seconds_billed()});
}

void SessionCore::AddKernelUse(const proto::KernelUse& entry) {
  const KernelUseKey key{entry.seq(), entry.kernel()};
  if (kernel_uses_.contains(key)) return;
  if (const size_t bytes = BytesOf(entry); kernel_uses_.size() < wire::kOpenKernelUsesMax &&
                                           kernel_uses_bytes_ + bytes <= kKernelUsesBytesMax) {
    kernel_uses_.emplace(key, entry);
    kernel_uses_bytes_ += bytes;
  } else {
    kernel_uses_lack_seq_ = std::max(kernel_uses_lack_seq_, entry.seq());
  }
}

void SessionCore::OnFailed(const proto::Failed& failed) {
  absl::Status status = StatusOf(failed);
  if (failed.seq() == 0)
    return failed.state_is_kept() && can_resume() && state_ != State::kClosing
               ? Stop(std::move(status))
               : End(std::move(status));
  if (failed.seq() > last_seq()) return;
  ack_due_ = true;
  pending_answers_.Fail(failed.seq(), status);
  if (failed.seq() <= std::min(resend_buffer_.dropped_seq(), acked_seq_)) return;
  if (failed_.insert(failed.seq()).second && first_failure_.ok()) first_failure_ = status;
}

void SessionCore::OnNeed(const proto::Need& need) {
  if (state_ != State::kOpen && state_ != State::kClosing) return;
  std::set<std::string> ids(need.graph_ids().begin(), need.graph_ids().end());
  proto::ClientItem item;
  for (const ResendBuffer::Entry& entry : resend_buffer_) {
    if (ids.empty()) return;
    if (!entry.is_run || entry.seq <= done_seq_ || !item.ParseFromString(entry.item)) continue;
    if (ids.erase(item.run().graph_id()) == 0) continue;
    graphs_sent_.insert(item.run().graph_id());
    out_.AddGraph(item.run().graph_id(), *entry.graph);
  }
}

void SessionCore::Stop(absl::Status status) {
  OnLinkLost();
  if (state_ != State::kLost) return End(std::move(status));
  state_ = State::kStopped;
  status_ = WithRuns(std::move(status));
}

void SessionCore::AddNotice(std::string line) {
  if (notices_.size() >= kNoticesWaitingMax) return;
  line = Printable(line);
  if (!line.empty()) notices_.push_back(std::move(line));
}

void SessionCore::OnNotice(const proto::Notice& notice) {
  std::string line = notice.text().substr(0, kNoticeBytesMax);
  // An answer may have been on its way when the session gave its device back: what wakes it brings
  // the answer again.
  if (notice.kind() == proto::Notice::DEVICE_RELEASED && MayEmit() &&
      (pending_answers_.misses_any() || pending_answers_.saves_any()))
    Fetch({}).IgnoreError();
  if (notice.kind() == proto::Notice::GATHERED)
    if (const std::string at = provenance_.LineOf(notice.seq(), notice.node()); !at.empty())
      return AddNotice(absl::StrCat(at, ": ", line));
  if (notice.kind() != proto::Notice::QUEUED) return AddNotice(std::move(line));
  std::string place = notice.count() == 0 ? "next in line"
                      : notice.count() == 1
                          ? "1 session is before this one"
                          : absl::StrCat(notice.count(), " sessions are before this one");
  if (notice.has_expected_s())
    absl::StrAppend(&place, ", about ", RoughDuration(notice.expected_s()));
  sessions_before_ = notice.count();
  queue_line_ = absl::StrCat(Printable(line), " (", place, ")");
  queue_line_is_new_ = true;
}

std::optional<std::string> SessionCore::TakeQueueLine() {
  if (!std::exchange(queue_line_is_new_, false)) return std::nullopt;
  return queue_line_;
}

void SessionCore::OnLinkLost() {
  queue_line_.reset();
  queue_line_is_new_ = false;
  if (state_ == State::kOpen || state_ == State::kOpening) state_ = State::kLost;
  out_.Restart(out_.epoch());
}

void SessionCore::Resume() { Open(devices_); }

void SessionCore::End(absl::Status status) {
  if (state_ == State::kEnded) return;
  state_ = State::kEnded;
  status_ = status.ok() ? absl::FailedPreconditionError(leaves_ ? "the session was left"
                                                                : "the session is closed")
                        : WithRuns(std::move(status));
  pending_answers_.FailAll(status_);
  done_seq_ = last_seq();
  resend_buffer_.Clear();
  out_.Restart(out_.epoch());
  releases_.clear();
  bytes_in_flight_ = 0;
}

absl::Status SessionCore::WithRuns(absl::Status status) const {
  if (runs_ == 0) return status;
  uint64_t runs_done = runs_;
  for (const ResendBuffer::Entry& entry : resend_buffer_)
    runs_done -= entry.is_run && entry.seq > done_seq_;
  return {status.code(),
          absl::StrCat(status.message(), " (", runs_done, " of ", runs_, " runs were done)")};
}

// ---- what is known ------------------------------------------------------------------------------

absl::Status SessionCore::TakeFirstFailure() {
  return provenance_.Explain(std::exchange(first_failure_, absl::OkStatus()));
}

std::vector<std::string> SessionCore::TakeNotices() { return std::exchange(notices_, {}); }

void SessionCore::FillStats(Stats& stats) const {
  stats.runs = runs_;
  stats.steps = steps_;
  stats.window_items = std::min<uint64_t>(granted_items_max_, send_window_.items());
  stats.round_trip_ms =
      std::chrono::duration<double, std::milli>(send_window_.round_trip()).count();
  stats.device_time_us = device_time_us_;
  stats.kernels_launched = kernels_;
  stats.operations = operations_;
  stats.bytes_accessed = bytes_accessed_;
  stats.cost_micro_usd = cost_micro_usd_;
  stats.seconds_billed = static_cast<double>(billed_ms_) / 1e3;
  stats.devices = std::max(1u, opened_.devices());
  stats.price_per_hour_micro_usd =
      opened_.price_per_hour_micro_usd() * std::max(1u, opened_.devices());
  stats.session_id = opened_.session_id();
  stats.session_name = opened_.name();
  stats.device = absl::StrCat(opened_.device().kind(), ": ", opened_.device().name());
}

}  // namespace outboard::session
