// Frames waiting for the one write that a stream may have in flight. Merges frames that queue up
// meanwhile: a thousand small items that arrive during one write leave as one frame.
#pragma once

#include <cstddef>
#include <deque>
#include <utility>

#include "wire/limits.h"

namespace outboard::wire {

// `Frame` is ClientFrame or ServerFrame. Not thread-safe; the owner holds a lock.
template <typename Frame>
class FrameQueue {
 public:
  void Push(Frame frame) {
    size_t bytes = frame.ByteSizeLong();
    if (!frames_.empty()) {
      Entry& last = frames_.back();
      if (last.frame.epoch() == frame.epoch() && last.bytes + bytes <= kFrameBytesMax &&
          last.frame.items_size() + frame.items_size() <= static_cast<int>(kFrameItemsMax)) {
        for (auto& item : *frame.mutable_items()) last.frame.add_items()->Swap(&item);
        last.bytes += bytes;
        bytes_ += bytes;
        return;
      }
    }
    frames_.push_back({std::move(frame), bytes});
    bytes_ += bytes;  // behind all that can throw
  }

  Frame Pop() {
    Entry entry = std::move(frames_.front());
    frames_.pop_front();
    bytes_ -= entry.bytes;
    return std::move(entry.frame);
  }

  void Clear() {
    frames_.clear();
    bytes_ = 0;
  }
  bool empty() const { return frames_.empty(); }
  size_t bytes() const { return bytes_; }

 private:
  struct Entry {
    Frame frame;
    size_t bytes;
  };
  std::deque<Entry> frames_;
  size_t bytes_ = 0;
};

}  // namespace outboard::wire
