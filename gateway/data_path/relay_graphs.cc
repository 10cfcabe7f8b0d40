// What a relay does with graphs, and with Puts of blobs, on their way to the executor: nothing of
// them leaves before it is known to be good (R2 of relay.cc).
#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/ir/limits.h"
#include "gateway/data_path/relay.h"
#include "wire/limits.h"
#include "wire/merkle.h"

namespace outboard::gateway {

// The whole graph when `piece` was its last; nothing before. A reader may still be busy with a
// frame when its client comes back on another stream, whose pieces these then are.
absl::StatusOr<std::optional<Relay::Joined>> Relay::Join(ClientEndpoint* client,
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
  return Joined{std::exchange(graph_bytes_, {}), std::move(graph_held_)};
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

// Pieces are joined, checked, and cut again: nothing of a graph leaves before the whole is known to
// be good.
absl::Status Relay::OnGraph(ClientEndpoint* client, proto::Graph& graph, proto::ClientFrame& out) {
  auto joined = Join(client, graph);
  if (!joined.ok()) return joined.status();
  if (!joined->has_value()) return absl::OkStatus();
  const std::string& bytes = (*joined)->bytes;
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
