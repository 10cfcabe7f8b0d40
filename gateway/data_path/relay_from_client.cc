// What a relay does with a client's frames on their way to the executor. Nothing of a graph, or of
// a Put of a blob, leaves before it is known to be good (R2 of relay.cc).
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/ir/limits.h"
#include "gateway/blobs/limits.h"
#include "gateway/data_path/relay.h"
#include "telemetry/counters.h"
#include "wire/limits.h"
#include "wire/merkle.h"

namespace outboard::gateway {

namespace {

constexpr size_t kSavesAwaitedMax = 64;  // as many answers as an executor keeps

bool IsPutByBlob(const proto::ClientItem& item) {
  return item.has_put() && !item.put().blob_root().empty();
}

// What a frame holds, over all of its items.
struct FrameFacts {
  int items = 0;
  uint64_t last_seq = 0, acknowledged_seq = 0, runs = 0, put_bytes = 0;
};

// Errors: RESOURCE_EXHAUSTED  a frame beyond the wire's limits
//         INVALID_ARGUMENT    an item that a client may not send on an open stream
absl::StatusOr<FrameFacts> Examine(const proto::ClientFrame& frame) {
  const size_t bytes = frame.ByteSizeLong();
  if (bytes > wire::kFrameBytesMax) {
    return absl::ResourceExhaustedError(
        absl::StrCat("a frame of ", bytes, " bytes; limit ", wire::kFrameBytesMax));
  }
  if (frame.items_size() > static_cast<int>(wire::kFrameItemsMax)) {
    return absl::ResourceExhaustedError(
        absl::StrCat("a frame of ", frame.items_size(), " items; limit ", wire::kFrameItemsMax));
  }
  telemetry::CountAs(telemetry::Metric::kClientBytes, telemetry::Direction::kIn, bytes);
  FrameFacts facts{.items = frame.items_size()};
  for (const proto::ClientItem& item : frame.items()) {
    if (item.has_open()) return absl::InvalidArgumentError("a second Open was sent on one stream");
    if (item.has_take_snapshot())
      return absl::InvalidArgumentError("TakeSnapshot is a gateway's to send");
    if (item.fetch().whole_size() > 0 || item.save().whole_size() > 0 ||
        item.run().whole_size() > 0)
      return absl::InvalidArgumentError("Whole is a gateway's to send");
    if (item.put().parts() > 0)
      return absl::InvalidArgumentError("the parts of a Put are a gateway's to say");
    facts.last_seq = std::max(facts.last_seq, item.seq());
    facts.acknowledged_seq = std::max<uint64_t>(facts.acknowledged_seq, item.ack().through_seq());
    facts.runs += item.has_run();
    facts.put_bytes += item.put().data().size();
  }
  return facts;
}

}  // namespace

bool Relay::IsHeavy(const proto::ClientFrame& frame) {
  return std::any_of(frame.items().begin(), frame.items().end(), [](const proto::ClientItem& item) {
    return item.has_graph() || IsPutByBlob(item);
  });
}

absl::StatusOr<bool> Relay::MustWrite(ClientEndpoint* client, const proto::ClientFrame& frame) {
  if (runs_ == nullptr) return false;
  uint64_t generation = 0;
  {
    std::lock_guard lock(mutex_);
    if (!IsCurrent(client, frame.epoch())) return false;
    generation = generation_;
  }
  OB_ASSIGN_OR_RETURN(const GroupRuns::Planned planned,
                      runs_->PlanFrame(/*may_write=*/false, frame, generation));
  return planned == GroupRuns::Planned::kMustWrite;
}

// First, without the lock, what takes time: graphs are verified, and written for the ranks. The
// client may have gone meanwhile, or come back on another stream: its frame is dropped then, and
// comes again.
absl::Status Relay::FromClient(ClientEndpoint* client, proto::ClientFrame frame, bool& pause) {
  pause = false;
  const uint64_t came_ns = trace_.Now(), epoch = frame.epoch();
  OB_ASSIGN_OR_RETURN(const FrameFacts facts, Examine(frame));
  OB_ASSIGN_OR_RETURN(std::optional<proto::ClientFrame> checked,
                      CheckItems(client, std::move(frame)));
  if (!checked.has_value()) return absl::OkStatus();
  proto::ClientFrame& out = *checked;
  OB_ASSIGN_OR_RETURN(const bool is_prepared, PrepareRuns(client, epoch, out));
  if (!is_prepared) return absl::OkStatus();

  std::lock_guard lock(mutex_);
  const BreaksIfThrown breaks(*this);
  if (!IsCurrent(client, epoch)) return absl::OkStatus();
  if (!has_all()) {
    if (runs_ != nullptr) generation_ = runs_->BeginGeneration();
    return absl::OkStatus();
  }
  if (runs_ != nullptr) RewriteForRanks(out);
  if (facts.last_seq > sent_seq_) sent_seq_ = facts.last_seq;
  if (answers_ != nullptr) answers_->Acknowledged(facts.acknowledged_seq);
  NoteSaves(out);
  if (facts.runs > 0) telemetry::Count(telemetry::Metric::kRuns, facts.runs);
  trace_.Up(came_ns, facts.last_seq, facts.items);  // before the answer can come
  if (out.items_size() > 0) SendToAll(std::move(out));
  if (answers_ != nullptr) {
    asks_.Sent(sent_seq_, facts.put_bytes);
    AskForSnapshotIfDue();
  }
  for (RankStream& rank : executors_) pause |= rank.full = rank.endpoint->AskWritable();
  client_paused_ = pause;
  return absl::OkStatus();
}

bool Relay::IsCurrent(const ClientEndpoint* client, uint64_t epoch) const {
  return !is_broken_ && client_ == client && epoch == start_.epoch;
}

// The frame as it may pass on: its Puts checked, and in place of a graph's pieces what OnGraph puts
// there: with runs_ nothing, without it the verified graph, or a refusal. Nothing: its client is
// not the relay's any more.
absl::StatusOr<std::optional<proto::ClientFrame>> Relay::CheckItems(ClientEndpoint* client,
                                                                    proto::ClientFrame frame) {
  if (!IsHeavy(frame)) return std::optional(std::move(frame));
  uint64_t behind_seq = 0;
  {
    std::lock_guard lock(mutex_);
    if (!IsCurrent(client, frame.epoch())) return std::nullopt;
    if (!start_.recoverable) behind_seq = done_seq_;
  }
  proto::ClientFrame out;
  out.set_epoch(frame.epoch());
  for (proto::ClientItem& item : *frame.mutable_items()) {
    if (item.has_graph()) {
      OB_RETURN_IF_ERROR(OnGraph(client, *item.mutable_graph(), out));
      continue;
    }
    if (IsPutByBlob(item)) OB_RETURN_IF_ERROR(CheckBlob(item, behind_seq));
    out.add_items()->Swap(&item);
  }
  return std::optional(std::move(out));
}

// Writes the graphs that the frame's Runs need for the ranks. False: its client is not the relay's
// any more.
absl::StatusOr<bool> Relay::PrepareRuns(ClientEndpoint* client, uint64_t epoch,
                                        const proto::ClientFrame& frame) {
  if (runs_ == nullptr) return true;
  uint64_t generation = 0;
  {
    std::lock_guard lock(mutex_);
    if (!IsCurrent(client, epoch)) return false;
    generation = generation_;
  }
  OB_RETURN_IF_ERROR(runs_->PlanFrame(/*may_write=*/true, frame, generation).status());
  return true;
}

// Makes of the items those for the ranks. Sends the graphs that these name before them, and tells
// the client what it is to hear of them.
void Relay::RewriteForRanks(proto::ClientFrame& frame) {
  std::vector<std::shared_ptr<const WrittenGraph>> written;
  runs_->Rewrite(frame, written);
  SendWritten(written);
  for (proto::Notice& notice : runs_->TakeNotices()) {
    proto::ServerFrame told;
    told.set_epoch(start_.epoch);
    *told.add_items()->mutable_notice() = std::move(notice);
    client_->Send(std::move(told));
  }
}

void Relay::NoteSaves(const proto::ClientFrame& frame) {
  for (const proto::ClientItem& item : frame.items()) {
    if (!item.has_save()) continue;
    // One that is longer is no name: the store refuses it.
    saves_[item.seq()] = item.save().name().substr(0, kStoreNameBytesMax + 1);
    if (saves_.size() > kSavesAwaitedMax) saves_.erase(saves_.begin());
  }
}

// The whole graph when `piece` was its last; nothing before. A reader may still be busy with a
// frame when its client comes back on another stream, whose pieces these then are.
absl::StatusOr<std::optional<Relay::ReceivedGraph>> Relay::AddPiece(ClientEndpoint* client,
                                                                    const proto::Graph& piece) {
  if (piece.id().size() != wire::kHashBytes ||
      piece.total_bytes() > uint64_t{limits::kGraphBytesMax}) {
    return absl::InvalidArgumentError(
        absl::StrCat("a graph of ", piece.total_bytes(), " bytes with an id of ", piece.id().size(),
                     "; limits ", limits::kGraphBytesMax, " and ", wire::kHashBytes));
  }
  std::lock_guard lock(mutex_);
  if (client_ != client) return std::nullopt;
  if (piece.offset() == 0) {
    DropGraph();
    graph_id_ = piece.id();
  }
  if (piece.id() != graph_id_ || piece.offset() != graph_bytes_.size() ||
      graph_bytes_.size() + piece.data().size() > piece.total_bytes()) {
    return absl::InvalidArgumentError("the pieces of a graph are not consecutive");
  }
  if (graphs_ != nullptr) {
    if (absl::Status full = graphs_->Add(tenant_, piece.data().size(), graph_held_); !full.ok())
      return full;
  }
  graph_bytes_ += piece.data();
  if (graph_bytes_.size() < piece.total_bytes()) return std::nullopt;
  return ReceivedGraph{std::exchange(graph_bytes_, {}), std::move(graph_held_)};
}

namespace {
void FillPiece(const std::string& id, const std::string& bytes, size_t at, proto::Graph& piece) {
  piece.set_id(id);
  piece.set_total_bytes(bytes.size());
  piece.set_offset(at);
  piece.set_data(bytes.substr(at, wire::kPieceBytesMax));
}
}  // namespace

// A frame for each piece, under the lock: what follows them may name the graph.
void Relay::SendWritten(const std::vector<std::shared_ptr<const WrittenGraph>>& graphs) {
  for (const std::shared_ptr<const WrittenGraph>& graph : graphs) {
    for (size_t at = 0; at == 0 || at < graph->bytes.size(); at += wire::kPieceBytesMax) {
      proto::ClientFrame frame;
      frame.set_epoch(start_.epoch);
      proto::Graph& piece = *frame.add_items()->mutable_graph();
      FillPiece(graph->id, graph->bytes, at, piece);
      piece.set_device_level(!graph->is_clients);
      if (!graph->status.ok()) {
        piece.set_refused_code(static_cast<uint32_t>(graph->status.code()));
        piece.set_refused(std::string(graph->status.message()));
      }
      SendToAll(std::move(frame));
    }
  }
}

// Pieces are put together, checked, and cut again: nothing of a graph leaves before the whole is
// known to be good.
absl::Status Relay::OnGraph(ClientEndpoint* client, proto::Graph& graph, proto::ClientFrame& out) {
  auto whole = AddPiece(client, graph);
  if (!whole.ok()) return whole.status();
  if (!whole->has_value()) return absl::OkStatus();
  const std::string& bytes = (*whole)->bytes;
  const uint64_t check_ns = trace_.Now();
  absl::Status verdict = admission_->Check(tenant_, graph.id(), bytes);
  trace_.Verified(check_ns, bytes.size());
  if (runs_ != nullptr && verdict.ok()) return runs_->AddGraph(graph.id(), bytes);
  if (runs_ != nullptr) return runs_->AddRefused(graph.id(), std::move(verdict));
  if (!verdict.ok()) {
    proto::Graph& refused = *out.add_items()->mutable_graph();
    refused.set_id(graph.id());
    refused.set_refused_code(static_cast<uint32_t>(verdict.code()));
    refused.set_refused(verdict.message().data(), verdict.message().size());
    return absl::OkStatus();
  }
  for (size_t at = 0; at == 0 || at < bytes.size(); at += wire::kPieceBytesMax) {
    FillPiece(graph.id(), bytes, at, *out.add_items()->mutable_graph());
    if (out.ByteSizeLong() < wire::kPieceBytesMax) continue;
    std::lock_guard lock(mutex_);
    uint64_t epoch = out.epoch();
    if (has_all() && client_ == client) SendToAll(std::move(out));
    out.Clear();
    out.set_epoch(epoch);
  }
  return absl::OkStatus();
}

// The worker pulls the blob; the session may, if its tenant has it. It stays as long as the item
// may have to be sent again: where there are no snapshots, until it is applied.
absl::Status Relay::CheckBlob(const proto::ClientItem& item, uint64_t behind_seq) {
  const proto::Put& put = item.put();
  const std::optional<wire::Hash> root = wire::HashFromBytes(put.blob_root());
  if (!root) {
    return absl::InvalidArgumentError(
        absl::StrCat("a blob root of ", put.blob_root().size(), " bytes"));
  }
  const auto size_bytes = blobs_->SizeOf(tenant_, *root);
  if (!size_bytes.ok()) return size_bytes.status();
  if (*size_bytes != put.total_bytes()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a Put of ", put.total_bytes(), " bytes by a blob of ", *size_bytes));
  }
  return blobs_->UseBlob(tenant_, session_, *root, item.seq(), behind_seq);
}

}  // namespace outboard::gateway
