// Blobs on disk, by tenant: chunks under their hashes, and roots that list chunks.
//
//   <folder>/<tenant>/chunks/ab/<hex>     the bytes
//   <folder>/<tenant>/roots/<hex>         "<size> <count>\n", then the hashes, 32 bytes each
//
// A file appears by rename, so a crash leaves temporary files only (removed when the store is
// opened). Whether the disk kept the bytes is checked when they are read: a chunk that is not what
// its name says is DATA_LOSS and is removed, so that the client sends it again.
//
// A tenant sees its own chunks only: nobody learns from Missing what others have, or reads by
// knowing a hash. Threads: any. Calls read or write the disk.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gateway/ledger/ids.h"
#include "proto/merkle.h"

namespace outboard::gateway {

class BlobStore {
 public:
  static absl::StatusOr<std::unique_ptr<BlobStore>> Open(const std::string& folder);

  bool Has(TenantId tenant, const wire::Hash& chunk) const;

  // One chunk on its way in. Destroyed without Finish, it leaves nothing.
  class Writer {
   public:
    ~Writer();
    // OUT_OF_RANGE beyond kBlobChunkBytes, RESOURCE_EXHAUSTED on a full disk.
    absl::Status Append(std::string_view bytes);
    // INVALID_ARGUMENT: the bytes are not those of the hash.
    absl::Status Finish();
    uint64_t bytes() const { return bytes_; }

   private:
    friend class BlobStore;
    Writer(std::string temporary, std::string target, const wire::Hash& hash, int fd);
    std::string temporary_, target_;
    wire::Hash hash_;
    wire::ChunkHasher hasher_;
    int fd_;
    uint64_t bytes_ = 0;
  };
  absl::StatusOr<std::unique_ptr<Writer>> Begin(TenantId tenant, const wire::Hash& chunk);

  // NOT_FOUND: some chunk is absent. INVALID_ARGUMENT: the root is not that of this list, or sizes
  // do not fit.
  absl::Status Commit(TenantId tenant, const wire::Hash& root, std::span<const wire::Hash> chunks,
                      uint64_t size_bytes);

  struct Blob {
    uint64_t size_bytes = 0;
    std::vector<wire::Hash> chunks;
  };
  absl::StatusOr<Blob> Find(TenantId tenant, const wire::Hash& root) const;  // NOT_FOUND
  // Verified. NOT_FOUND, DATA_LOSS.
  absl::StatusOr<std::string> ReadChunk(TenantId tenant, const wire::Hash& chunk) const;

 private:
  explicit BlobStore(std::string folder) : folder_(std::move(folder)) {}
  std::string ChunkPath(TenantId tenant, const wire::Hash& chunk) const;
  std::string RootPath(TenantId tenant, const wire::Hash& root) const;
  std::string TemporaryPath() const;

  const std::string folder_;
};

}  // namespace outboard::gateway
