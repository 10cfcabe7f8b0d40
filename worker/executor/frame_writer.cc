#include "worker/executor/frame_writer.h"

#include <utility>

#include "wire/limits.h"

namespace outboard::worker {

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
