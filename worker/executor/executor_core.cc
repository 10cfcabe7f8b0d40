// Invariants; those of SessionState's own are stated in session_state.cc
//   E1  Sequenced items are applied in the order 1, 2, 3 ... each once. Items at or below
//       applied_seq_ are skipped, a gap ends the session.
//   E2, E3, E7, E10  handles, donations, versions of kernels: session_state.cc
//   E4  Every value asked for, and every failure, is retained until it is acknowledged, and sent
//       again after a reconnection.
//   E5  While the first of waiting_ lacks its graph or blob, no later item is applied.
//   E6  Frames of another epoch than the last Open's are dropped, but for a TakeSnapshot that names
//       no item.
//   E8  A snapshot of seq S holds the effect of the items 1 to S and of no others, and every answer
//       to them that is not acknowledged. durable_seq is reported when it is stored, not before. No
//       snapshot is taken while a Save has no answer: a restored session has no unfinished Save.
//       A rank of several takes one of exactly the item that the gateway names, or none: it holds
//       the arrays between that item and the next.
//   E9  An answer to an item up to received_seq_ is not sent again, not even by a replay.
//
//   new --Open--> open --Close--> ended
//    |             |  ^ Open with a higher epoch (resume)
//    |             +--gap, malformed item: Failed(seq 0)--> ended
//    +--Open with a snapshot--> restoring --OnBlob, the last--> open
#include "worker/executor/executor_core.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/ir/limits.h"
#include "wire/limits.h"

namespace outboard::worker {

namespace {

// What waits for a graph is bounded by the window that the client was given; this holds if it lies.
constexpr size_t kWaitingItemsMax = 2 * wire::kWindowItems;
// Arrays are bounded by their memory; this is for those of no bytes and for poison.
constexpr size_t kHandlesMax = size_t{1} << 22;
constexpr uint64_t kProgressEveryNs = 20'000'000;

// What an item may name before anything of it is kept. An answer repeats the names, and has to fit
// into a frame.
absl::Status CheckNames(const proto::ClientItem& item) {
  const size_t handles = static_cast<size_t>(item.run().inputs_size()) + item.run().outputs_size() +
                         item.release().handles_size() + item.fetch().handles_size() +
                         item.save().entries_size() + item.keep().entries_size();
  if (handles > wire::kRunHandlesMax)
    return absl::ResourceExhaustedError(absl::StrCat("item ", item.seq(), " names ", handles,
                                                     " handles; limit ", wire::kRunHandlesMax));
  if (!item.put().blob_root().empty() && item.put().blob_root().size() != wire::kHashBytes)
    return absl::InvalidArgumentError(absl::StrCat(
        "a blob's root of ", item.put().blob_root().size(), " bytes; it has ", wire::kHashBytes));
  if (item.put().dims_size() > limits::kRankMax)
    return absl::ResourceExhaustedError(absl::StrCat("item ", item.seq(), " puts an array of rank ",
                                                     item.put().dims_size(), "; limit ",
                                                     limits::kRankMax));
  size_t longest = 0;
  for (const proto::Save::Entry& entry : item.save().entries())
    longest = std::max(longest, entry.name().size());
  for (const proto::Keep::Entry& entry : item.keep().entries())
    longest = std::max(longest, entry.name().size());
  if (longest > wire::kEntryNameBytesMax)
    return absl::InvalidArgumentError(
        absl::StrCat("a name of ", longest, " bytes; limit ", wire::kEntryNameBytesMax));
  const std::string* const graph_id = item.has_run()     ? &item.run().graph_id()
                                      : item.has_graph() ? &item.graph().id()
                                                         : nullptr;
  if (graph_id != nullptr && graph_id->size() != wire::kHashBytes)
    return absl::InvalidArgumentError(
        absl::StrCat("a graph's id of ", graph_id->size(), " bytes; it has ", wire::kHashBytes));
  return absl::OkStatus();
}

}  // namespace

ExecutorCore::ExecutorCore(Engine* engine, ExecutorOptions options)
    : engine_(engine), options_(std::move(options)), state_(engine, options_.follow) {}

ExecutorCore::~ExecutorCore() { engine_->SetTrace(nullptr); }

std::vector<proto::ServerFrame> ExecutorCore::On(proto::ClientFrame frame) {
  std::vector<proto::ServerFrame> answers;
  On(std::move(frame), [&](proto::ServerFrame answer) { answers.push_back(std::move(answer)); });
  return answers;
}

void ExecutorCore::On(proto::ClientFrame frame, const SendFrame& send) {
  BeginAnswers(send);
  if (trace_ != nullptr) TraceFrame(frame);
  for (proto::ClientItem& item : *frame.mutable_items()) {
    if (ended_) break;
    if (item.has_open()) {
      OnOpen(item.open(), frame.epoch());
    } else if (item.has_take_snapshot()) {
      OnTakeSnapshot(item.take_snapshot(), frame.epoch());
    } else if (!open_) {
      EndSession(absl::FailedPreconditionError("a session must begin with Open"));
    } else if (frame.epoch() == epoch_) {  // E6
      if (restoration_ != nullptr)
        EndSession(absl::FailedPreconditionError("an item arrived before Opened"));
      else
        Handle(std::move(item));
    }
  }
  FinishAnswers();
}

void ExecutorCore::BeginAnswers(const SendFrame& send) {
  out_.SetTarget(&send);
  if (options_.now_ns) answered_ns_ = options_.now_ns();
}

// A frame may hold seconds of work. Whoever waits for a value of its first Run, or measures steps
// by their Dones, hears of them before its last.
void ExecutorCore::SendProgress() {
  if (!options_.now_ns || applied_seq_ <= done_seq_) return;
  if (options_.now_ns() - answered_ns_ < kProgressEveryNs) return;
  SendDone();
  out_.Flush();
  answered_ns_ = options_.now_ns();
}

void ExecutorCore::FinishAnswers() {
  if ((applied_seq_ > done_seq_ || missed_is_news_) && !ended_) SendDone();
  out_.Flush();
  out_.SetTarget(nullptr);
}

void ExecutorCore::Handle(proto::ClientItem item) {
  if (absl::Status status = CheckNames(item); !status.ok()) return EndSession(status);
  switch (item.kind_case()) {
    case proto::ClientItem::kGraph: return OnGraph(item.graph());
    case proto::ClientItem::kAck: return unacknowledged_.Acknowledge(item.ack().through_seq());
    case proto::ClientItem::kClose: return OnClose();
    case proto::ClientItem::kRun:
    case proto::ClientItem::kPut:
    case proto::ClientItem::kRelease:
    case proto::ClientItem::kFetch:
    case proto::ClientItem::kSave:
    case proto::ClientItem::kKeep: return OnSequenced(std::move(item));
    default:
      return EndSession(
          absl::InvalidArgumentError("an item of a kind that this version does not know"));
  }
}

void ExecutorCore::OnOpen(const proto::Open& open, uint64_t epoch) {
  if (open_ && epoch <= epoch_) return;  // an old stream's
  const bool first = !open_;
  if (open.memory_bytes_max() > 0) {
    constexpr auto kMost = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
    engine_->LimitMemory(static_cast<int64_t>(std::min(open.memory_bytes_max(), kMost)));
  }
  open_ = true;
  epoch_ = epoch;
  trace_ =
      open.trace() && options_.now_ns ? std::make_unique<ExecutorTrace>(options_.now_ns) : nullptr;
  engine_->SetTrace(trace_.get());
  out_.SetEpoch(epoch);
  CarryWaiting();
  state_.ForgetPutUnderWay();
  graphs_.DropIncomplete();
  graph_asked_for_.clear();
  opened_by_ = open;
  received_seq_ = std::max(received_seq_, open.received_seq());
  schedule_.SetInterval(open.snapshot_ms());
  if (open.snapshots_when_told()) schedule_.SetWhenTold();
  ordered_snapshot_.Clear();
  taken_snapshot_.reset();
  last_ordered_number_ = last_missed_number_ = 0;
  missed_is_news_ = false;
  if (restoration_ != nullptr) return;  // it goes on, and answers the last Open
  if (waiting_.empty()) inbox_.Forget();
  if (first && !open.snapshot_root().empty()) {
    restoration_ = std::make_unique<Restoration>(open.snapshot_root(), &inbox_);
    return;
  }
  if (first) {
    if (absl::Status status = FollowKernelUses(); !status.ok()) return EndSession(status);
  }
  // Another client's items begin behind all that every rank has of the one before; here some wait.
  opens_when_applied_ = open.is_new_client() && !waiting_.empty();
  if (!opens_when_applied_) SendOpened();
  if (blob_asked_for_.empty()) ApplyWaiting();
}

// The client sends again what is not applied. In a group other ranks may be in the middle of an
// item that waits here, and hear of no Open before they are through: what is here whole stays, and
// is skipped when it comes again. Of a Run whose graph has not come no rank is in the middle, and
// another client than its own cannot send that graph: nothing of it stays. That no rank is in the
// middle of it holds since all lack a graph together: one that a rank lacks was not sent to any, or
// had come to none in whole (R6 of gateway/data_path/relay.cc), and the gateway sends it again
// ahead of its Run (GR2 of gateway/groups/group_runs.cc).
void ExecutorCore::CarryWaiting() {
  size_t kept = 0;
  uint64_t seq = 0, bytes = 0;
  for (size_t i = 0; engine_->group() != nullptr && i < waiting_.size(); ++i) {
    const proto::ClientItem& item = waiting_[i];
    if (item.has_run() && graphs_.Find(item.run().graph_id()) == nullptr) break;
    if (std::exchange(seq, item.seq()) != item.seq()) bytes = 0;
    bytes += item.put().data().size();
    const bool lacks = item.has_put() && item.put().blob_root().empty() &&
                       bytes < item.put().total_bytes();  // another piece
    if (!lacks) kept = i + 1;
  }
  if (state_.put_under_way() != 0) kept = 0;
  waiting_.resize(kept);
  carried_seq_ = waiting_.empty() ? 0 : waiting_.back().seq();
  if (waiting_.empty()) blob_asked_for_.clear();
}

void ExecutorCore::SendOpened() {
  proto::ServerItem item;
  proto::Opened& opened = *item.mutable_opened();
  opened.set_session_id(opened_by_.session_id());
  opened.set_protocol(std::min(opened_by_.protocol().max(), wire::kProtocolVersion));
  opened.set_graph_schema(wire::kGraphSchemaVersion);
  opened.set_applied_seq(applied_seq_);
  opened.set_devices(1);
  opened.mutable_device()->set_kind(engine_->kind());
  opened.mutable_device()->set_name(options_.device_name);
  opened.mutable_device()->set_hardware_class(options_.hardware_class);
  opened.mutable_device()->set_memory_bytes(static_cast<uint64_t>(engine_->memory_bytes_max()));
  opened.mutable_window()->set_items_in_flight_max(wire::kWindowItems);
  opened.mutable_window()->set_bytes_in_flight_max(wire::kWindowBytes);
  opened.set_keeps(true);
  out_.Write(std::move(item));
  KnowKernelUses();
  if (opened_by_.is_new_client()) {  // of what another client asked for, nothing is for this one
    // Not what the other had received: it may have been further than the snapshot that this one
    // begins with, whose items after it have the same numbers and need their answers.
    received_seq_ = applied_seq_;
    unacknowledged_.Acknowledge(received_seq_);
    for (proto::Kept& piece : state_.ListKept()) {
      proto::ServerItem kept;
      *kept.mutable_kept() = std::move(piece);
      out_.Write(std::move(kept));
    }
    return;
  }
  unacknowledged_.Acknowledge(received_seq_);
  for (const auto& [seq, answer] : unacknowledged_.by_seq()) SendAnswer(seq, answer);  // E4
  for (const SaveAnswer& answer : unacknowledged_.saves()) out_.Write(answer.item);
}

void ExecutorCore::OnBlob(const std::string& key, absl::StatusOr<runtime::DeviceBuffer> contents,
                          const SendFrame& send) {
  if (ended_) return;
  BeginAnswers(send);
  inbox_.Arrived(key, std::move(contents));
  if (restoration_ != nullptr) {
    const absl::StatusOr<bool> complete = restoration_->OnBlob(key);
    absl::Status status = complete.status();
    if (status.ok() && *complete) status = Restored();
    if (!status.ok()) EndSession(status);
  } else if (blob_asked_for_ == key) {
    blob_asked_for_.clear();
    ApplyWaiting();
  }
  FinishAnswers();
}

absl::Status ExecutorCore::Restored() {
  const std::unique_ptr<Restoration> restoration = std::move(restoration_);
  const proto::SessionSnapshot& snapshot = restoration->snapshot();
  OB_RETURN_IF_ERROR(restoration->Install(state_, unacknowledged_, received_seq_));
  applied_seq_ = done_seq_ = snapshot.seq();
  schedule_.Restored(snapshot.seq());
  restored_.device_time_us = snapshot.device_time_us();
  restored_.kernels_launched = snapshot.kernels_launched();
  restored_.operations = snapshot.operations();
  restored_.bytes_accessed = snapshot.bytes_accessed();
  OB_RETURN_IF_ERROR(FollowKernelUses());
  SendOpened();
  return absl::OkStatus();
}

void ExecutorCore::OnGraph(const proto::Graph& piece) {
  if (trace_ != nullptr) trace_->SetItem(0);
  absl::StatusOr<bool> complete = false;
  {
    const TraceSpan span(trace_.get(), "read graph");
    complete = graphs_.Add(piece);
  }
  if (!complete.ok()) return EndSession(complete.status());
  if (!*complete || graph_asked_for_ != piece.id()) return;
  graph_asked_for_.clear();
  ApplyWaiting();
}

// The answer says how far everything is durable: the gateway may have been started again, and know
// neither.
void ExecutorCore::OnTakeSnapshot(const proto::TakeSnapshot& told, uint64_t epoch) {
  if (!open_ || restoration_ != nullptr) return;  // there is no state yet, or a snapshot has it all
  if (partner_left_) return;                      // in the middle of an item
  if (told.seq() == 0) {
    schedule_.RequestNow();
    return SendDone();
  }
  if (epoch != epoch_) return;                        // E6
  if (told.number() <= last_ordered_number_) return;  // a frame that came twice
  last_ordered_number_ = told.number();
  ordered_snapshot_ = told;
  TakeToldSnapshot();
}

void ExecutorCore::OnClose() {
  SendDone();
  state_.Clear();
  ended_ = true;
}

void ExecutorCore::OnSequenced(proto::ClientItem item) {
  if (item.seq() <= carried_seq_) return;  // CarryWaiting: it is here, or applied
  waiting_bytes_ = waiting_.empty() ? 0 : waiting_bytes_ + item.put().data().size();
  if (waiting_.size() >= kWaitingItemsMax || waiting_bytes_ > 2 * wire::kWindowBytes)
    return EndSession(
        absl::ResourceExhaustedError("more items are in flight than the session's window allows"));
  if (state_.handle_count() > kHandlesMax)
    return EndSession(absl::ResourceExhaustedError(absl::StrCat(
        "the session has ", state_.handle_count(), " handles; the limit is ", kHandlesMax)));
  // One that is larger than memory is not worth getting.
  if (const proto::Put& put = item.put(); !put.blob_root().empty() && item.seq() > applied_seq_)
    if (const absl::StatusOr<BlobPart> part = PartOf(put, rank_);
        part.ok() && part->stored_bytes <= MemoryBytesMax())
      inbox_.Want({.root = put.blob_root(),
                   .size_bytes = put.total_bytes(),
                   .key = BlobKeyOf(put),
                   .is_part = put.parts() > 0,
                   .offset = part->offset,
                   .bytes = part->bytes,
                   .stored_bytes = part->stored_bytes});
  waiting_.push_back(std::move(item));
  if (graph_asked_for_.empty() && blob_asked_for_.empty()) ApplyWaiting();
}

void ExecutorCore::ApplyWaiting() {
  while (!waiting_.empty() && !ended_ && !partner_left_) {
    const proto::ClientItem& item = waiting_.front();
    if (item.seq() > applied_seq_ || options_.planted.no_seq_check) {  // E1
      if (item.seq() > applied_seq_ + 1)
        return EndSession(absl::FailedPreconditionError(
            absl::StrCat("item ", item.seq(), " came where ", applied_seq_ + 1, " was next")));
      if (item.has_run()) SendProgress();
      if (TryApply(item) != Applied::kDone) return;  // E5, or nothing is applied any more
    }
    waiting_.pop_front();
  }
  if (waiting_.empty() && !ended_ && std::exchange(opens_when_applied_, false)) SendOpened();
}

ExecutorCore::Applied ExecutorCore::TryApply(const proto::ClientItem& item) {
  const uint64_t seq = item.seq();
  if (const uint64_t put = state_.put_under_way(); put != 0 && !(item.has_put() && put == seq)) {
    EndSession(absl::InvalidArgumentError(
        absl::StrCat("item ", seq, " came before the last piece of Put ", put)));
    return Applied::kDone;
  }
  if (trace_ != nullptr) trace_->SetItem(seq);
  begun_seq_ = seq;
  std::optional<Outcome> outcome = ChangeState(item);
  if (!outcome) return Applied::kWaits;
  if (GroupHasEnded()) return Applied::kGroupEnded;
  if (lost_seq_ == 0 && !engine_->device().health().ok()) lost_seq_ = seq;
  if (!outcome->session_error.ok()) {
    EndSession(outcome->session_error);
    return Applied::kDone;
  }
  if (!outcome->answers.empty()) {
    const TraceSpan span(trace_.get(), "answer");
    for (Answer& answer : outcome->answers)
      if (!ended_) SendAndRetain(seq, std::move(answer));
  }
  if (outcome->applied) applied_seq_ = seq;
  schedule_.Applied(item);
  TakeToldSnapshot();
  if (trace_ != nullptr && trace_->wants_done()) SendDone();
  return Applied::kDone;
}

std::optional<Outcome> ExecutorCore::ChangeState(const proto::ClientItem& item) {
  const uint64_t seq = item.seq();
  switch (item.kind_case()) {
    case proto::ClientItem::kRun: return ApplyRun(seq, item.run());
    case proto::ClientItem::kPut: return ApplyPut(seq, item.put());
    case proto::ClientItem::kSave: ApplySave(seq, item.save()); return Outcome();
    case proto::ClientItem::kRelease: return state_.ApplyRelease(item.release());
    case proto::ClientItem::kKeep: return state_.ApplyKeep(seq, item.keep());
    case proto::ClientItem::kFetch:
      return state_.ApplyFetch(seq, item.fetch(), JoinGraphsOf(item.fetch().whole()));
    default: break;
  }
  return Outcome{.session_error = absl::InternalError("an item that changes no state")};
}

std::optional<Outcome> ExecutorCore::ApplyRun(uint64_t seq, const proto::Run& run) {
  const KnownGraph* const graph = graphs_.Find(run.graph_id());
  if (graph == nullptr) {
    graph_asked_for_ = run.graph_id();
    proto::ServerItem need;
    need.mutable_need()->add_graph_ids(graph_asked_for_);
    out_.Write(std::move(need));
    return std::nullopt;
  }
  const TraceSpan span(trace_.get(), "run");
  return state_.ApplyRun(seq, run, *graph, JoinGraphsOf(run.whole()));
}

std::optional<Outcome> ExecutorCore::ApplyPut(uint64_t seq, const proto::Put& put) {
  const TraceSpan span(trace_.get(), "put");
  if (put.blob_root().empty()) return state_.ApplyPut(seq, put);
  absl::StatusOr<BlobPart> part = PartOf(put, rank_);
  if (!part.ok()) return state_.ApplyPutBlob(seq, put, {}, part.status());
  if (part->stored_bytes > MemoryBytesMax())
    return state_.ApplyPutBlob(seq, put, {},
                               absl::ResourceExhaustedError(
                                   absl::StrCat("a Put of ", part->stored_bytes,
                                                " bytes; the session has ", MemoryBytesMax())));
  if (auto blob = inbox_.Take(BlobKeyOf(put)))
    return state_.ApplyPutBlob(seq, put, std::move(part->dims), *std::move(blob));
  blob_asked_for_ = BlobKeyOf(put);
  return std::nullopt;
}

// The rank that failed half way says why, and ends. Where another one left, its end is told by
// those who know more of it than this rank does: no answer is given, and they end the session.
bool ExecutorCore::GroupHasEnded() {
  if (engine_->group() == nullptr) return false;
  const absl::Status status = engine_->group()->status();
  if (status.ok() || options_.planted.goes_on_alone) return false;
  if (collective::AbortedRank(status) == rank_)
    EndSession(status);
  else
    partner_left_ = true;
  return true;
}

// The gateway has sent them before; what it has not sent fails.
SessionState::JoinGraphs ExecutorCore::JoinGraphsOf(const Wholes& wholes) const {
  static const KnownGraph unknown{.status = absl::InternalError("a graph that was not sent")};
  SessionState::JoinGraphs graphs;
  for (const proto::Whole& whole : wholes) {
    const KnownGraph* const graph = graphs_.Find(whole.graph_id());
    graphs[whole.index()] = graph != nullptr ? graph : &unknown;
  }
  return graphs;
}

void ExecutorCore::SendAndRetain(uint64_t seq, Answer answer) {
  if (seq <= received_seq_) return;  // E9
  if (rank_ != 0 && answer.array != nullptr) return;
  SendAnswer(seq, answer);
  if (absl::Status status = unacknowledged_.Add(seq, std::move(answer)); !status.ok())
    EndSession(status);
}

void ExecutorCore::SendAnswer(uint64_t seq, const Answer& answer) {
  if (answer.array != nullptr) return SendValue(seq, answer);
  proto::ServerItem item;
  *item.mutable_failed() = answer.failed;
  out_.Write(std::move(item));
}

void ExecutorCore::EndSession(const absl::Status& status) {
  if (ended_) return;  // the first cause is the last word
  proto::ServerItem item;
  item.mutable_failed()->set_code(static_cast<uint32_t>(status.code()));
  item.mutable_failed()->set_message(std::string(status.message()));
  out_.Write(std::move(item));
  ended_ = true;
}

void ExecutorCore::SendValue(uint64_t seq, const Answer& answer) {
  const DeviceArray& array = *answer.array;
  int64_t offset = 0;
  const auto send = [&](std::string_view piece) {
    proto::ServerItem item;
    proto::Value& value = *DoneHeader(item)->add_values();
    // A value says nothing about what is applied: that is the last Done's.
    item.mutable_done()->set_through_seq(done_seq_);
    value.set_seq(seq);
    value.set_index(answer.index);
    value.set_handle(answer.handle);
    value.set_dtype(static_cast<uint32_t>(array.dtype));
    for (const int64_t dim : array.dims) value.add_dims(static_cast<uint64_t>(dim));
    value.set_total_bytes(static_cast<uint64_t>(array.bytes()));
    value.set_offset(static_cast<uint64_t>(offset));
    value.mutable_data()->assign(piece);  // one copy
    out_.Write(std::move(item));
    offset += static_cast<int64_t>(piece.size());
    return absl::OkStatus();
  };
  if (array.bytes() == 0) {
    send("").IgnoreError();
    return;
  }
  const absl::Status status =
      array.device().Download(array.address(), array.bytes(), wire::kPieceBytesMax, send);
  if (!status.ok()) EndSession(status);  // the device has failed
}

void ExecutorCore::TraceFrame(const proto::ClientFrame& frame) {
  uint64_t last = 0;
  for (const proto::ClientItem& item : frame.items()) last = std::max(last, item.seq());
  trace_->FrameCame(last);
}

proto::Done* ExecutorCore::DoneHeader(proto::ServerItem& item) {
  proto::Done* const done = item.mutable_done();
  done->set_through_seq(applied_seq_);
  AddStats(*done);
  done->set_durable_seq(schedule_.durable_seq());
  done->set_snapshot_missed(last_missed_number_);
  missed_is_news_ = false;
  AddKernelUses(*done);
  return done;
}

void ExecutorCore::SendDone() {
  proto::ServerItem item;
  proto::Done* const done = DoneHeader(item);
  if (trace_ != nullptr) trace_->Take(*done);
  done_seq_ = applied_seq_;
  out_.Write(std::move(item));
}

void FrameWriter::SetEpoch(uint64_t epoch) {
  Flush();
  epoch_ = epoch;
}

void FrameWriter::Write(proto::ServerItem item) {
  const size_t bytes = item.ByteSizeLong() + 16;  // and its place in the frame
  if (bytes_ + bytes > wire::kFrameBytesMax ||
      frame_.items_size() >= static_cast<int>(wire::kFrameItemsMax))
    Flush();
  bytes_ += bytes;
  *frame_.add_items() = std::move(item);
}

void FrameWriter::Flush() {
  if (frame_.items_size() > 0) {
    frame_.set_epoch(epoch_);
    (*send_)(std::exchange(frame_, {}));
  }
  bytes_ = 0;
}

}  // namespace outboard::worker
