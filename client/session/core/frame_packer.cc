#include "client/session/core/frame_packer.h"

#include <algorithm>
#include <utility>

#include "wire/limits.h"

namespace outboard::transport {

namespace {
constexpr size_t kItemOverheadBytes = 16;  // tag, length and seq around an item, at most
}  // namespace

void FramePacker::Restart(uint64_t epoch) {
  epoch_ = epoch;
  frames_.clear();
}

void FramePacker::Add(proto::ClientItem item) {
  const size_t bytes = item.ByteSizeLong() + kItemOverheadBytes;
  if (frames_.empty() || frame_bytes_ + bytes > wire::kFrameBytesMax ||
      frames_.back().items_size() >= static_cast<int>(wire::kFrameItemsMax)) {
    frames_.emplace_back().set_epoch(epoch_);
    frame_bytes_ = kItemOverheadBytes;
  }
  frames_.back().add_items()->Swap(&item);
  frame_bytes_ += bytes;
}

void FramePacker::AddGraph(const std::string& id, const std::string& bytes) {
  size_t at = 0;
  do {
    const size_t length = std::min(bytes.size() - at, wire::kPieceBytesMax);
    proto::ClientItem item;
    proto::Graph& graph = *item.mutable_graph();
    graph.set_id(id);
    graph.set_total_bytes(bytes.size());
    graph.set_offset(at);
    graph.set_data(bytes.data() + at, length);
    Add(std::move(item));
    at += length;
  } while (at < bytes.size());
}

void FramePacker::AddPut(const proto::ClientItem& put, const std::string& bytes) {
  size_t at = 0;
  do {
    const size_t length = std::min(bytes.size() - at, wire::kPieceBytesMax);
    proto::ClientItem piece = put;
    piece.mutable_put()->set_offset(at);
    piece.mutable_put()->set_data(bytes.data() + at, length);
    Add(std::move(piece));
    at += length;
  } while (at < bytes.size());
}

std::vector<proto::ClientFrame> FramePacker::Take() { return std::exchange(frames_, {}); }

}  // namespace outboard::transport
