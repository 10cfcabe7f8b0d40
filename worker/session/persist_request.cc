#include "worker/session/persist_request.h"

namespace outboard::worker {

uint64_t PersistRequest::total_bytes() const {
  uint64_t total = 0;
  for (const DeviceArrayPtr& array : arrays) total += static_cast<uint64_t>(array->bytes());
  return total;
}

std::string PersistRequest::ManifestBytes(std::span<const std::string> roots) const {
  size_t next = 0;
  if (checkpoint) {
    proto::Checkpoint named = manifest;
    for (proto::Checkpoint::Entry& entry : *named.mutable_entries())
      entry.set_blob_root(roots[next++]);
    return named.SerializeAsString();
  }
  proto::SessionSnapshot named = snapshot;
  for (proto::SessionSnapshot::Held& held : *named.mutable_held())
    if (held.dtype() != 0) held.set_blob_root(roots[next++]);
  for (proto::SessionSnapshot::Unacknowledged& answer : *named.mutable_unacknowledged())
    if (answer.dtype() != 0) answer.set_blob_root(roots[next++]);
  return named.SerializeAsString();
}

}  // namespace outboard::worker
