#include "worker/session/graph_table.h"

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/ir/limits.h"
#include "wire/status_code.h"

namespace outboard::worker {

struct GraphTable::Entry {
  std::string bytes;  // while it arrives
  uint64_t total = 0;
  bool complete = false;
  KnownGraph known;
};

GraphTable::GraphTable() = default;
GraphTable::~GraphTable() = default;

absl::StatusOr<bool> GraphTable::Add(const proto::Graph& piece) {
  std::unique_ptr<Entry>& entry = graphs_[piece.id()];
  // What was refused under this id may have been other bytes, and these are good.
  const bool was_refused = entry != nullptr && entry->complete && !entry->known.status.ok();
  if (entry == nullptr || (was_refused && piece.refused_code() == 0))
    entry = std::make_unique<Entry>();
  if (entry->complete) return false;  // idempotent
  KnownGraph& known = entry->known;
  if (piece.refused_code() != 0) {
    known.status = absl::Status(wire::CodeFromWire(piece.refused_code()), piece.refused());
    return entry->complete = true;
  }
  if (piece.total_bytes() > static_cast<uint64_t>(limits::kGraphBytesMax))
    return absl::ResourceExhaustedError(absl::StrCat("a graph of ", piece.total_bytes(),
                                                     " bytes is over the limit of ",
                                                     limits::kGraphBytesMax));
  if (graphs_.size() > kGraphsMax || bytes_ + piece.data().size() > kGraphBytesOfSessionMax)
    return absl::ResourceExhaustedError(
        absl::StrCat("the graphs of the session are over the limit of ", kGraphsMax, " or of ",
                     kGraphBytesOfSessionMax, " bytes"));
  bytes_ += piece.data().size();
  if (piece.offset() == 0) entry->bytes.clear();
  entry->total = piece.total_bytes();
  if (piece.offset() != entry->bytes.size() ||
      entry->bytes.size() + piece.data().size() > entry->total)
    return absl::InvalidArgumentError("the pieces of a graph are not consecutive");
  entry->bytes += piece.data();
  if (entry->bytes.size() < entry->total) return false;

  known.id = IdOfEncoding(entry->bytes);
  if (known.id.ToBytes() != piece.id()) {
    known.status = absl::InvalidArgumentError("the graph's bytes do not match its id");
  } else {
    // The gateway has done this too; a worker does not rely on its word.
    absl::StatusOr<const UOp*> sink =
        DecodeGraph(known.graph, entry->bytes,
                    piece.device_level() ? Level::kDevice : Level::kTensor);
    if (sink.ok())
      known.sink = *sink;
    else
      known.status = sink.status();
  }
  entry->bytes = {};
  return entry->complete = true;
}

const KnownGraph* GraphTable::Find(const std::string& id) const {
  const auto found = graphs_.find(id);
  return found != graphs_.end() && found->second->complete ? &found->second->known : nullptr;
}

void GraphTable::DropIncomplete() {
  absl::erase_if(graphs_, [](const auto& entry) { return !entry.second->complete; });
}

}  // namespace outboard::worker
