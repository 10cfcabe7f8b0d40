// A request to store a snapshot of a session's whole state, or a checkpoint that a Save asked for.
// It holds the arrays as they were at that item: a later Run finds them referenced, and does not
// overwrite them.
//
// Threads: the arrays' references belong to the session's thread. Another may read their bytes
// while the request lives, no more.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "proto/cloud.pb.h"
#include "proto/fleet.pb.h"
#include "proto/store.pb.h"
#include "worker/engine/engine.h"

namespace outboard::worker {

struct PersistRequest {
  uint64_t id = 0;   // 1, 2, 3 ... in a session
  uint64_t seq = 0;  // of a snapshot: the last item it includes; of a checkpoint: the Save
  uint64_t epoch = 0;
  uint64_t told = 0;  // of a snapshot that the gateway asked for: the number of that TakeSnapshot
  bool checkpoint = false;
  std::string name;  // of a checkpoint
  proto::SessionSnapshot snapshot;
  proto::Checkpoint manifest;
  // In the order in which the snapshot (held, then kept) or the checkpoint names them.
  std::vector<DeviceArrayPtr> arrays;

  uint64_t total_bytes() const;
  // The blob that names the others, with `roots` (32 bytes each) in the order of `arrays`.
  std::string ManifestBytes(std::span<const std::string> roots) const;
};

// Fills in a snapshot's entry for an array, except its root.
template <typename Entry>
void Describe(const DeviceArray& array, Entry* entry) {
  entry->set_dtype(static_cast<uint32_t>(array.dtype));
  for (const int64_t dim : array.dims) entry->add_dims(static_cast<uint64_t>(dim));
}

}  // namespace outboard::worker
