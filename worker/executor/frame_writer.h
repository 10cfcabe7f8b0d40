// Packs a session's answers into ServerFrames of one epoch, each at most wire::kFrameBytesMax and
// wire::kFrameItemsMax, and sends each as it fills up: a value of any size needs no extra memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "proto/cloud.pb.h"

namespace outboard::worker {

class FrameWriter {
 public:
  using SendFrame = std::function<void(proto::ServerFrame)>;

  // Sets the receiver of frames; with nullptr, nothing may be written.
  void SetTarget(const SendFrame* send) { send_ = send; }
  // Sets the epoch of later frames. Items written before keep the previous epoch.
  void SetEpoch(uint64_t epoch);
  void Write(proto::ServerItem item);
  void Flush();

 private:
  const SendFrame* send_ = nullptr;
  uint64_t epoch_ = 0;
  proto::ServerFrame frame_;
  size_t bytes_ = 0;
};

}  // namespace outboard::worker
