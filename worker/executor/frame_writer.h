// Packs a session's answers into ServerFrames of one epoch, each at most wire::kFrameBytesMax and
// wire::kFrameItemsMax, and hands each on as it fills up: a value of any size needs no memory
// beside its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "proto/cloud.pb.h"

namespace outboard::worker {

class FrameWriter {
 public:
  using SendFrame = std::function<void(proto::ServerFrame)>;

  // Where frames go from now on; nullptr: nowhere, and then nothing may be written.
  void SetTarget(const SendFrame* send) { send_ = send; }
  // Of the frames from now on. What was written before goes with the epoch before.
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
