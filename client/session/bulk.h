// The connections that a session's bulk bytes use: blobs up. Its steps have another, so that
// none of them waits behind a weight; these are several, since one does not fill a long line.
//
// They connect at the first transfer. Threads: any; a transfer blocks its caller until it is done,
// or until Cancel. Errors: those of wire/blobs/transfer.h.
#pragma once

#include <atomic>
#include <chrono>
#include <mutex>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "wire/blobs/upload.h"

namespace outboard::transport {

// Several connections of their own to `target`, for calls of whoever has `key`.
wire::BlobConnections MakeBulkConnections(const std::string& target, const std::string& key);

class Bulk {
 public:
  // retry_for: how long a connection that is lost is made again.
  Bulk(std::string target, std::string key, std::chrono::milliseconds retry_for)
      : target_(std::move(target)), key_(std::move(key)), retry_for_(retry_for) {}

  absl::StatusOr<wire::Uploaded> Upload(std::span<const wire::BlobSource> sources);
  // Ends what is under way and whatever comes: CANCELLED.
  void Cancel() { cancelled_ = true; }

  uint64_t bytes_up() const { return bytes_up_; }

 private:
  const wire::BlobConnections& Connections();
  wire::TransferOptions Options() const;

  const std::string target_, key_;
  const std::chrono::milliseconds retry_for_;
  std::atomic<bool> cancelled_{false};
  std::atomic<uint64_t> bytes_up_{0};
  std::once_flag once_;
  wire::BlobConnections connections_;
};

}  // namespace outboard::transport
