// The blobs that a session waits for: requests to send, and blobs that arrived and were not taken
// yet. Each taker gets memory of its own, since an array made of it may be overwritten; so two
// takers of the same bytes get two blobs.
//
// An adapter sends the requests (BlobWant) and delivers the blobs. Threads: one.
// Errors: a blob arrives with the status of its download (NOT_FOUND, UNAVAILABLE,
// RESOURCE_EXHAUSTED).
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "runtime/device.h"

namespace outboard::worker {

// Requests of one executor that its supervisor has not answered: enough to keep its transfers busy.
// The supervisor ends a session that has more.
inline constexpr size_t kBlobWantsMax = 256;

struct BlobWant {
  std::string root;         // 32 bytes
  uint64_t size_bytes = 0;  // 0: not known
  // By which it is delivered and taken; `root` where all of the blob is wanted.
  std::string key = root;
  // Else so much of it (blob_part.h).
  bool is_part = false;
  uint64_t offset = 0, bytes = 0, stored_bytes = 0;
};

class BlobInbox {
 public:
  // Adds a taker of `want.key`.
  void Want(BlobWant want);
  // Returns the new requests since the last call, in order; each gets one answer.
  std::vector<BlobWant> TakeWants() { return std::exchange(wants_, {}); }
  // Delivers the verified bytes, or an error. Drops a blob that has no taker any more.
  void Arrived(const std::string& key, absl::StatusOr<runtime::DeviceBuffer> contents);
  // Returns nullopt if the blob has not arrived.
  std::optional<absl::StatusOr<runtime::DeviceBuffer>> Take(const std::string& key);
  // Drops all takers, when their stream has ended.
  void Forget();

 private:
  struct Blob {
    size_t takers = 0;
    size_t asked = 0;  // and not answered
    std::deque<absl::StatusOr<runtime::DeviceBuffer>> here;
  };

  absl::flat_hash_map<std::string, Blob> blobs_;  // looked up; walked by Forget alone
  std::vector<BlobWant> wants_;
};

}  // namespace outboard::worker
