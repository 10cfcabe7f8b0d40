// Invariants
//   E1  Sequenced items are applied in the order 1, 2, 3 ... each once. What is at or below
//       applied_seq_ is skipped, a gap ends the session.
//   E2  A handle is in the table from the item that defines it to its Release or donation. It holds
//       an array or the status of what should have made it (poison), with the item that failed
//       first.
//   E3  Donated inputs end before the Run is run, whether it fails or not: the engine may write
//       over them, and what it leaves half written has no name. Beyond that a failed Run changes
//       nothing but its outputs, which become poison.
//   E4  Every value asked for, and every failure, is kept until it is acknowledged, and sent again
//       after a reconnection.
//   E5  While the first of waiting_ lacks its graph, nothing behind it is applied.
//   E6  Frames of another epoch than the last Open's are dropped.
//   E7  A kernel's version changes between two Runs only, and the plan log says before which. The
//       same items with that log to follow give the same bits.
//
//   new --Open--> open --Close--> ended
//                  |  ^ Open with a higher epoch (resume)
//                  +--gap, malformed item: Failed(seq 0)--> ended
#include "worker/executor_core.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/ir/check.h"
#include "compiler/ir/encoding.h"
#include "compiler/ir/limits.h"
#include "proto/limits.h"
#include "proto/status_code.h"
#include "worker/failed_node.h"

namespace outboard::worker {
namespace {

// What waits for a graph, or for acknowledgement, is bounded by the credit the client was given;
// these hold if it lies.
constexpr size_t kWaitingItemsMax = 2 * wire::kCreditItems;
constexpr size_t kKeptItemsMax = 16 * wire::kCreditItems;
// Kept values share the memory of their arrays, which has its limit; failures name handles.
constexpr size_t kKeptFailedBytesMax = size_t{16} << 20;
// Arrays are bounded by their memory; this is for those of no bytes and for poison.
constexpr size_t kHandlesMax = size_t{1} << 22;
// Of a session's graphs, which are kept until it ends: a program has dozens. Decoded they take some
// ten times that.
constexpr size_t kGraphsMax = 4096;
constexpr uint64_t kGraphBytesOfSessionMax = uint64_t{256} << 20;

// What an item may name before anything of it is kept. An answer repeats the names, and has to fit
// into a frame.
absl::Status CheckNames(const proto::ClientItem& item) {
  const size_t handles = static_cast<size_t>(item.run().inputs_size()) + item.run().outputs_size() +
                         item.release().handles_size() + item.fetch().handles_size();
  if (handles > wire::kRunHandlesMax)
    return absl::ResourceExhaustedError(absl::StrCat("item ", item.seq(), " names ", handles,
                                                     " handles; limit ", wire::kRunHandlesMax));
  if (item.put().dims_size() > limits::kRankMax)
    return absl::ResourceExhaustedError(absl::StrCat("item ", item.seq(), " puts an array of rank ",
                                                     item.put().dims_size(), "; limit ",
                                                     limits::kRankMax));
  const std::string* const graph_id = item.has_run()     ? &item.run().graph_id()
                                      : item.has_graph() ? &item.graph().id()
                                                         : nullptr;
  if (graph_id != nullptr && graph_id->size() != wire::kHashBytes)
    return absl::InvalidArgumentError(
        absl::StrCat("a graph's id of ", graph_id->size(), " bytes; it has ", wire::kHashBytes));
  return absl::OkStatus();
}

}  // namespace

struct ExecutorCore::Entry {
  ArrayPtr array;
  absl::Status status;  // where there is no array
  uint64_t cause_seq = 0;
};

struct ExecutorCore::GraphEntry {
  std::string bytes;  // while it arrives
  uint64_t total = 0;
  bool complete = false;
  absl::Status status;  // why it cannot be run
  Graph graph;
  const UOp* sink = nullptr;
  GraphId id;
};

struct ExecutorCore::PartialPut {
  uint64_t seq = 0;
  uint64_t total = 0;  // as the first piece said, and the array is
  uint64_t filled = 0;
  std::shared_ptr<Array> array;
  absl::Status status;
};

ExecutorCore::ExecutorCore(Engine* engine, ExecutorOptions options)
    : engine_(engine), options_(std::move(options)) {}
ExecutorCore::~ExecutorCore() = default;

std::vector<proto::ServerFrame> ExecutorCore::On(proto::ClientFrame frame) {
  std::vector<proto::ServerFrame> answers;
  On(std::move(frame), [&](proto::ServerFrame answer) { answers.push_back(std::move(answer)); });
  return answers;
}

void ExecutorCore::On(proto::ClientFrame frame, const SendFrame& send) {
  send_ = &send;
  for (proto::ClientItem& item : *frame.mutable_items()) {
    if (ended_) break;
    if (item.has_open()) {
      OnOpen(item.open(), frame.epoch());
    } else if (!open_) {
      EndSession(absl::FailedPreconditionError("a session begins with Open"));
    } else if (frame.epoch() == epoch_) {  // E6
      Handle(std::move(item));
    }
  }
  if (applied_seq_ > told_seq_ && !ended_) {
    proto::ServerItem item;
    DoneHeader(item);
    told_seq_ = applied_seq_;
    Send(std::move(item));
  }
  Flush();
  send_ = nullptr;
}

void ExecutorCore::Handle(proto::ClientItem item) {
  if (absl::Status status = CheckNames(item); !status.ok()) return EndSession(status);
  switch (item.kind_case()) {
    case proto::ClientItem::kGraph: return OnGraph(item.graph());
    case proto::ClientItem::kAck: return OnAck(item.ack());
    case proto::ClientItem::kClose: return OnClose();
    case proto::ClientItem::kRun:
    case proto::ClientItem::kPut:
    case proto::ClientItem::kRelease:
    case proto::ClientItem::kFetch: return OnSequenced(std::move(item));
    default:
      return EndSession(
          absl::InvalidArgumentError("an item of a kind that this version does not know"));
  }
}

void ExecutorCore::OnOpen(const proto::Open& open, uint64_t epoch) {
  if (open_ && epoch <= epoch_) return;  // an old stream's
  const bool resumed = open_;
  if (open.memory_bytes_max() > 0) {
    constexpr auto kMost = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
    engine_->LimitMemory(static_cast<int64_t>(std::min(open.memory_bytes_max(), kMost)));
  }
  open_ = true;
  Flush();  // what is of the epoch before
  epoch_ = epoch;
  put_.reset();  // half a Put is forgotten with its stream
  waiting_.clear();
  needed_.clear();
  absl::erase_if(graphs_, [](const auto& entry) { return !entry.second->complete; });

  proto::ServerItem item;
  proto::Opened& opened = *item.mutable_opened();
  opened.set_session_id(open.session_id());
  opened.set_protocol(wire::kProtocolVersion);
  opened.set_graph_schema(wire::kGraphSchemaVersion);
  opened.set_applied_seq(applied_seq_);
  opened.set_devices(1);
  opened.mutable_device()->set_kind(engine_->kind());
  opened.mutable_device()->set_name(options_.device_name);
  opened.mutable_device()->set_hardware_class(options_.hardware_class);
  opened.mutable_device()->set_memory_bytes(static_cast<uint64_t>(engine_->memory_bytes_max()));
  opened.mutable_credit()->set_items_in_flight_max(wire::kCreditItems);
  opened.mutable_credit()->set_bytes_in_flight_max(wire::kCreditBytes);
  Send(std::move(item));
  if (!resumed) return;
  Acknowledge(open.received_seq());
  for (const auto& [seq, kept] : kept_) SendKept(seq, kept);  // E4
}

void ExecutorCore::OnGraph(const proto::Graph& piece) {
  std::unique_ptr<GraphEntry>& entry = graphs_[piece.id()];
  if (entry == nullptr) entry = std::make_unique<GraphEntry>();
  if (entry->complete) return;  // idempotent
  if (piece.refused_code() != 0) {
    entry->complete = true;
    entry->status = absl::Status(wire::CodeFromWire(piece.refused_code()), piece.refused());
    return GraphArrived(piece.id());
  }
  if (piece.total_bytes() > static_cast<uint64_t>(limits::kGraphBytesMax))
    return EndSession(absl::ResourceExhaustedError(absl::StrCat("a graph of ", piece.total_bytes(),
                                                                " bytes is over the limit of ",
                                                                limits::kGraphBytesMax)));
  if (graphs_.size() > kGraphsMax || graph_bytes_ + piece.data().size() > kGraphBytesOfSessionMax)
    return EndSession(absl::ResourceExhaustedError(
        absl::StrCat("the graphs of the session are over the limit of ", kGraphsMax, " or of ",
                     kGraphBytesOfSessionMax, " bytes")));
  graph_bytes_ += piece.data().size();
  if (piece.offset() == 0) entry->bytes.clear();
  entry->total = piece.total_bytes();
  if (piece.offset() != entry->bytes.size() ||
      entry->bytes.size() + piece.data().size() > entry->total)
    return EndSession(absl::InvalidArgumentError("the pieces of a graph do not follow each other"));
  entry->bytes += piece.data();
  if (entry->bytes.size() < entry->total) return;

  entry->complete = true;
  entry->id = IdOfEncoding(entry->bytes);
  if (entry->id.ToBytes() != piece.id()) {
    entry->status = absl::InvalidArgumentError("the bytes of the graph are not those of its id");
  } else {
    // The gateway has done this too; a worker does not rely on its word.
    absl::StatusOr<const UOp*> sink = DecodeGraph(entry->graph, entry->bytes, Level::kTensor);
    if (sink.ok())
      entry->sink = *sink;
    else
      entry->status = sink.status();
  }
  entry->bytes = {};
  GraphArrived(piece.id());
}

void ExecutorCore::GraphArrived(const std::string& id) {
  if (needed_ != id) return;
  needed_.clear();
  Drain();
}

void ExecutorCore::OnAck(const proto::Ack& ack) { Acknowledge(ack.through_seq()); }

void ExecutorCore::Acknowledge(uint64_t through_seq) {
  const auto end = kept_.upper_bound(through_seq);
  for (auto it = kept_.begin(); it != end; ++it)
    if (it->second.array == nullptr) kept_failed_bytes_ -= it->second.failed.ByteSizeLong();
  kept_.erase(kept_.begin(), end);
}

void ExecutorCore::OnClose() {
  proto::ServerItem item;
  DoneHeader(item);
  told_seq_ = applied_seq_;
  Send(std::move(item));
  handles_.clear();
  ended_ = true;
}

void ExecutorCore::OnSequenced(proto::ClientItem item) {
  waiting_bytes_ = waiting_.empty() ? 0 : waiting_bytes_ + item.put().data().size();
  if (waiting_.size() >= kWaitingItemsMax || waiting_bytes_ > 2 * wire::kCreditBytes)
    return EndSession(
        absl::ResourceExhaustedError("more items are in flight than the session's credit allows"));
  if (handles_.size() > kHandlesMax)
    return EndSession(absl::ResourceExhaustedError(
        absl::StrCat("the session has ", handles_.size(), " handles; the limit is ", kHandlesMax)));
  waiting_.push_back(std::move(item));
  if (needed_.empty()) Drain();
}

void ExecutorCore::Drain() {
  while (!waiting_.empty() && !ended_) {
    const proto::ClientItem& item = waiting_.front();
    if (item.seq() > applied_seq_) {  // E1
      if (item.seq() != applied_seq_ + 1)
        return EndSession(absl::FailedPreconditionError(
            absl::StrCat("item ", item.seq(), " came where ", applied_seq_ + 1, " was next")));
      if (!TryApply(item)) return;  // E5
    }
    waiting_.pop_front();
  }
}

bool ExecutorCore::TryApply(const proto::ClientItem& item) {
  const uint64_t seq = item.seq();
  if (put_ != nullptr && !(item.has_put() && put_->seq == seq)) {
    EndSession(absl::InvalidArgumentError(
        absl::StrCat("item ", seq, " came before the last piece of Put ", put_->seq)));
    return true;
  }
  switch (item.kind_case()) {
    case proto::ClientItem::kRun: {
      const auto graph = graphs_.find(item.run().graph_id());
      if (graph == graphs_.end() || !graph->second->complete) {
        needed_ = item.run().graph_id();
        proto::ServerItem need;
        need.mutable_need()->add_graph_ids(needed_);
        Send(std::move(need));
        return false;
      }
      ApplyRun(seq, item.run(), *graph->second);
      applied_seq_ = seq;
      return true;
    }
    case proto::ClientItem::kPut: ApplyPut(seq, item.put()); return true;
    case proto::ClientItem::kRelease:
      for (const uint64_t handle : item.release().handles()) handles_.erase(handle);
      applied_seq_ = seq;
      return true;
    default:
      ApplyFetch(seq, item.fetch());
      applied_seq_ = seq;
      return true;
  }
}

absl::Status ExecutorCore::CheckRun(const proto::Run& run) const {
  for (const uint32_t device : run.devices())
    if (device != 0) return absl::UnimplementedError("a Run on more than one device");
  if (run.repeat() > 1) return absl::UnimplementedError("a Run with repeat > 1");
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
  return absl::OkStatus();
}

void ExecutorCore::ApplyRun(uint64_t seq, const proto::Run& run, const GraphEntry& graph) {
  absl::Status status = graph.status;
  uint64_t cause_seq = seq;
  status.Update(CheckRun(run));
  for (const uint64_t handle : run.outputs())
    if (status.ok() && (handle == 0 || handles_.contains(handle)))
      status = absl::InvalidArgumentError(absl::StrCat("output handle ", handle, " is in use"));
  std::vector<ArrayPtr> inputs;
  for (const uint64_t handle : run.inputs()) {
    const auto entry = handles_.find(handle);
    if (!status.ok()) break;
    if (entry == handles_.end()) {
      status = absl::NotFoundError(absl::StrCat("input handle ", handle, " does not exist"));
    } else if (entry->second.array == nullptr) {
      status = entry->second.status;  // E2: the first cause
      cause_seq = entry->second.cause_seq;
    } else {
      inputs.push_back(entry->second.array);
    }
  }
  std::vector<int64_t> donated;
  for (const uint32_t i : run.donate()) {
    if (i >= static_cast<uint32_t>(run.inputs_size())) continue;
    if (handles_.erase(run.inputs(i)) > 0) donated.push_back(i);  // E3
  }
  std::vector<ArrayPtr> outputs;
  if (status.ok()) {
    std::vector<Binding> bindings;
    for (const proto::Binding& binding : run.bindings())
      bindings.push_back({binding.slot(), binding.value()});
    if (graph.sink->src.size() != static_cast<size_t>(run.outputs_size())) {
      status =
          absl::InvalidArgumentError(absl::StrCat("the graph has ", graph.sink->src.size(),
                                                  " results, the Run names ", run.outputs_size()));
    } else {
      absl::StatusOr<std::vector<ArrayPtr>> results =
          RunGraph(seq, graph, std::move(inputs), bindings, donated);
      if (results.ok())
        outputs = *std::move(results);
      else
        status = results.status();
    }
  }
  if (!status.ok()) {
    Fail(seq, cause_seq, status, {run.outputs().begin(), run.outputs().end()}, run.graph_id());
    return;
  }
  for (int i = 0; i < run.outputs_size(); ++i) handles_[run.outputs(i)].array = outputs[i];
  for (const uint32_t i : run.fetch()) Keep(seq, Kept{outputs[i], i, run.outputs(i), {}});
}

absl::StatusOr<std::vector<ArrayPtr>> ExecutorCore::RunGraph(uint64_t seq, const GraphEntry& graph,
                                                             std::vector<ArrayPtr> inputs,
                                                             std::span<const Binding> bindings,
                                                             std::span<const int64_t> donated) {
  for (; followed_ < options_.follow.size() && options_.follow[followed_].seq <= seq; ++followed_)
    engine_->Pin(options_.follow[followed_].version);
  absl::StatusOr<std::vector<ArrayPtr>> results =
      engine_->Run(graph.id, graph.sink, std::move(inputs), bindings, donated);
  for (KernelVersion& version : engine_->TakeVersions())  // E7
    if (absl::Status status = plan_log_.Note(seq, std::move(version)); !status.ok())
      EndSession(status);
  return results;
}

void ExecutorCore::ApplyPut(uint64_t seq, const proto::Put& put) {
  if (put_ == nullptr) {
    put_ = std::make_unique<PartialPut>();
    put_->seq = seq;
    put_->total = put.total_bytes();
    const auto dtype = static_cast<DType>(put.dtype());
    std::vector<int64_t> dims;
    for (const uint64_t dim : put.dims()) dims.push_back(static_cast<int64_t>(dim));
    if (put.handle() == 0 || handles_.contains(put.handle())) {
      put_->status =
          absl::InvalidArgumentError(absl::StrCat("handle ", put.handle(), " is in use"));
    } else if (put.dtype() == 0 || put.dtype() >= static_cast<uint32_t>(kDTypeCount)) {
      put_->status =
          absl::InvalidArgumentError(absl::StrCat("element type ", put.dtype(), " is unknown"));
    } else if (!put.blob_root().empty()) {
      put_->status = absl::FailedPreconditionError("a blob reached an executor");
    } else if (auto array = engine_->NewArray(dtype, dims); !array.ok()) {
      put_->status = array.status();
    } else if (static_cast<uint64_t>((*array)->bytes()) != put.total_bytes()) {
      put_->status = absl::InvalidArgumentError(absl::StrCat(
          "a Put of ", put.total_bytes(), " bytes for an array of ", (*array)->bytes()));
    } else {
      put_->array = *std::move(array);
    }
  }
  if (put.total_bytes() != put_->total || put.offset() != put_->filled ||
      put.data().size() > put_->total - put_->filled)
    return EndSession(absl::InvalidArgumentError("the pieces of a Put do not follow each other"));
  if (put_->array != nullptr)
    std::memcpy(put_->array->data() + put.offset(), put.data().data(), put.data().size());
  put_->filled += put.data().size();
  if (put_->filled < put_->total) return;
  if (put_->status.ok())
    handles_[put.handle()].array = std::move(put_->array);
  else
    Fail(seq, seq, put_->status, {put.handle()});
  put_.reset();
  applied_seq_ = seq;
}

void ExecutorCore::ApplyFetch(uint64_t seq, const proto::Fetch& fetch) {
  for (int i = 0; i < fetch.handles_size(); ++i) {
    const auto entry = handles_.find(fetch.handles(i));
    if (entry == handles_.end())
      return Fail(seq, seq,
                  absl::NotFoundError(absl::StrCat("handle ", fetch.handles(i), " does not exist")),
                  {});
    if (entry->second.array == nullptr)
      return Fail(seq, entry->second.cause_seq, entry->second.status, {});
  }
  for (int i = 0; i < fetch.handles_size() && !ended_; ++i)
    Keep(seq,
         Kept{handles_.at(fetch.handles(i)).array, static_cast<uint32_t>(i), fetch.handles(i), {}});
}

void ExecutorCore::Fail(uint64_t seq, uint64_t cause_seq, const absl::Status& status,
                        std::vector<uint64_t> handles, std::string_view graph_id) {
  for (const uint64_t handle : handles)
    if (handle != 0 && !handles_.contains(handle))
      handles_[handle] = Entry{nullptr, status, cause_seq};
  Kept kept;
  proto::Failed& failed = *kept.failed.mutable_failed();
  failed.set_seq(seq);
  for (const uint64_t handle : handles) failed.add_handles(handle);
  failed.set_code(static_cast<uint32_t>(status.code()));
  failed.set_message(std::string(status.message()));
  failed.set_cause_seq(cause_seq);
  failed.set_graph_id(std::string(graph_id));
  if (const std::optional<FailedNode> node = FailedNodeOf(status)) {
    failed.set_node(node->index);
    failed.set_op(node->op);
  }
  failed.set_retryable(status.code() == absl::StatusCode::kResourceExhausted);
  kept_failed_bytes_ += kept.failed.ByteSizeLong();
  Keep(seq, std::move(kept));
}

void ExecutorCore::EndSession(const absl::Status& status) {
  if (ended_) return;  // the first cause is the last word
  proto::ServerItem item;
  item.mutable_failed()->set_code(static_cast<uint32_t>(status.code()));
  item.mutable_failed()->set_message(std::string(status.message()));
  Send(std::move(item));
  ended_ = true;
}

void ExecutorCore::SendValue(uint64_t seq, const Kept& kept) {
  const Array& array = *kept.array;
  uint64_t offset = 0;
  const auto total = static_cast<uint64_t>(array.bytes());
  do {
    proto::ServerItem item;
    proto::Value& value = *DoneHeader(item)->add_values();
    // A value says nothing about what is applied: that is the last Done's.
    item.mutable_done()->set_through_seq(told_seq_);
    const uint64_t piece = std::min<uint64_t>(total - offset, wire::kPieceBytesMax);
    value.set_seq(seq);
    value.set_index(kept.index);
    value.set_handle(kept.handle);
    value.set_dtype(static_cast<uint32_t>(array.dtype));
    for (const int64_t dim : array.dims) value.add_dims(static_cast<uint64_t>(dim));
    value.set_total_bytes(total);
    value.set_offset(offset);
    value.set_data(array.data() + offset, piece);
    Send(std::move(item));
    offset += piece;
  } while (offset < total);
}

proto::Done* ExecutorCore::DoneHeader(proto::ServerItem& item) const {
  proto::Done* const done = item.mutable_done();
  done->set_through_seq(applied_seq_);
  done->set_device_time_us(engine_->stats().device_time_us);
  done->set_kernels_launched(engine_->stats().kernels_launched);
  return done;
}

void ExecutorCore::Keep(uint64_t seq, Kept kept) {
  if (kept_.size() >= kKeptItemsMax || kept_failed_bytes_ > kKeptFailedBytesMax)
    return EndSession(absl::ResourceExhaustedError(
        absl::StrCat("too much waits for the client's acknowledgement; the limit is ",
                     kKeptItemsMax, " values, or ", kKeptFailedBytesMax, " bytes of failures")));
  SendKept(seq, kept);
  kept_.emplace(seq, std::move(kept));
}

void ExecutorCore::SendKept(uint64_t seq, const Kept& kept) {
  if (kept.array != nullptr)
    SendValue(seq, kept);
  else
    Send(kept.failed);
}

void ExecutorCore::Send(proto::ServerItem item) {
  const size_t bytes = item.ByteSizeLong() + 16;  // and its place in the frame
  if (out_bytes_ + bytes > wire::kFrameBytesMax ||
      out_.items_size() >= static_cast<int>(wire::kFrameItemsMax))
    Flush();
  out_bytes_ += bytes;
  *out_.add_items() = std::move(item);
}

void ExecutorCore::Flush() {
  if (out_.items_size() > 0) {
    out_.set_epoch(epoch_);
    (*send_)(std::exchange(out_, {}));
  }
  out_bytes_ = 0;
}

}  // namespace outboard::worker
