// What a session wants to be stored: a snapshot of all it is, or a checkpoint that a Save asked
// for. The arrays are held here as they were at that item; a Run behind it finds them in use, and
// writes its results elsewhere.
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
  uint64_t seq = 0;  // of a snapshot: what it holds; of a checkpoint: the Save
  uint64_t epoch = 0;
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

// An array as a snapshot's entry says what it is: all but its root.
template <typename Entry>
void Describe(const DeviceArray& array, Entry* entry) {
  entry->set_dtype(static_cast<uint32_t>(array.dtype));
  for (const int64_t dim : array.dims) entry->add_dims(static_cast<uint64_t>(dim));
}

}  // namespace outboard::worker
