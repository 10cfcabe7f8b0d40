#include "worker/session/blob_inbox.h"

namespace outboard::worker {

void BlobInbox::Want(BlobWant want) {
  Blob& blob = blobs_[want.key];
  if (blob.asked + blob.here.size() >= ++blob.takers) return;
  ++blob.asked;
  wants_.push_back(std::move(want));
}

void BlobInbox::Arrived(const std::string& key, absl::StatusOr<runtime::DeviceBuffer> contents) {
  const auto found = blobs_.find(key);
  if (found == blobs_.end() || found->second.asked == 0) return;  // nobody asked
  Blob& blob = found->second;
  --blob.asked;
  if (blob.here.size() < blob.takers) blob.here.push_back(std::move(contents));
  if (blob.takers == 0 && blob.asked == 0) blobs_.erase(found);
}

std::optional<absl::StatusOr<runtime::DeviceBuffer>> BlobInbox::Take(const std::string& key) {
  const auto found = blobs_.find(key);
  if (found == blobs_.end() || found->second.here.empty()) return std::nullopt;
  Blob& blob = found->second;
  absl::StatusOr<runtime::DeviceBuffer> contents = std::move(blob.here.front());
  blob.here.pop_front();
  if (--blob.takers == 0 && blob.asked == 0) blobs_.erase(found);
  return contents;
}

void BlobInbox::Forget() {
  for (auto& [key, blob] : blobs_) {
    blob.takers = 0;
    blob.here.clear();
  }
  absl::erase_if(blobs_, [](const auto& entry) { return entry.second.asked == 0; });
}

}  // namespace outboard::worker
