// Packs items into frames to send: items in order, graphs and Puts in pieces, each frame within the
// wire's limits (wire/limits.h). Threads: one owner.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "proto/cloud.pb.h"

namespace outboard::transport {

class FramePacker {
 public:
  // Starts a new epoch and drops frames that were not taken, since they belong to no stream any
  // more.
  void Restart(uint64_t epoch);
  uint64_t epoch() const { return epoch_; }

  void Add(proto::ClientItem item);
  void AddGraph(const std::string& id, const std::string& bytes);
  void AddPut(const proto::ClientItem& put, const std::string& bytes);

  std::vector<proto::ClientFrame> Take();

 private:
  uint64_t epoch_ = 0;
  std::vector<proto::ClientFrame> frames_;
  size_t frame_bytes_ = 0;  // of frames_.back()
};

}  // namespace outboard::transport
