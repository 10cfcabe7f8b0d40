// The blobs that a session waits for: which to ask for, and those that came and were not taken yet.
// Each blob comes as memory of its own, since an array made of it may be written over; so two who
// want the same bytes are given two blobs.
//
// Who asks for what (BlobWant) and hands in what came is an adapter. Threads: one.
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

struct BlobWant {
  std::string root;         // 32 bytes
  uint64_t size_bytes = 0;  // 0: not known
};

class BlobInbox {
 public:
  // One more taker of `root`.
  void Want(const std::string& root, uint64_t size_bytes);
  // What is to be asked for since the last call, in the order of the wants; one answer each.
  std::vector<BlobWant> TakeWants() { return std::exchange(wants_, {}); }
  // The bytes, verified, or why they cannot be had. What nobody waits for any more is dropped.
  void Arrived(const std::string& root, absl::StatusOr<runtime::DeviceBuffer> contents);
  // nullopt: it has not come.
  std::optional<absl::StatusOr<runtime::DeviceBuffer>> Take(const std::string& root);
  // Nobody waits any more, with a stream that ended.
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
