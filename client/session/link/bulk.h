// The connections for a session's bulk uploads (blobs). Steps use a separate connection, so that no
// step waits for a large upload; there are several of these because one does not fill a long link.
//
// They connect at the first transfer. Threads: any; a transfer blocks its caller until it is done
// or Cancel is called. Errors: those of wire/blobs/transfer.h.
#pragma once

#include <atomic>
#include <chrono>
#include <mutex>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "client/session/protection.h"
#include "wire/blobs/upload.h"

namespace outboard::session {

// Makes separate connections to `target` for calls authorised by `key`.
wire::BlobConnections MakeBulkConnections(const std::string& target, const std::string& key,
                                          const Protection& protection = {});

class Bulk {
 public:
  // retry_for: how long to retry a lost connection.
  Bulk(std::string target, std::string key, Protection protection,
       std::chrono::milliseconds retry_for)
      : target_(std::move(target)),
        key_(std::move(key)),
        protection_(std::move(protection)),
        retry_for_(retry_for) {}

  absl::StatusOr<wire::Uploaded> Upload(std::span<const wire::BlobSource> sources);
  // Ends the current and all later transfers with CANCELLED.
  void Cancel() { cancelled_ = true; }

  uint64_t bytes_up() const { return bytes_up_; }

 private:
  const wire::BlobConnections& Connections();
  wire::TransferOptions Options() const;

  const std::string target_, key_;
  const Protection protection_;
  const std::chrono::milliseconds retry_for_;
  std::atomic<bool> cancelled_{false};
  std::atomic<uint64_t> bytes_up_{0};
  std::once_flag once_;
  wire::BlobConnections connections_;
};

}  // namespace outboard::session
