// Blobs on disk, by tenant: chunks under their hashes, and roots that list chunks.
//
//   <folder>/tmp/                       what is being written; emptied when the store is opened
//   <folder>/<tenant>/fresh/<hex>       whole chunks that perhaps have not reached the disk
//   <folder>/<tenant>/chunks/<hex>      chunks that have
//   <folder>/<tenant>/roots/<hex>       blobs: "<size> <count>\n", then the hashes, 32 bytes each
//   <folder>/<tenant>/roots/<hex>.session  the same, of blobs that a session's worker made
//
// A file appears by rename, whole; a thread of the store's writes it to the disk, so that uploads
// do not wait for that. After a crash fresh chunks are verified, and a blob of which anything is
// missing is not there: a committed blob is whole or absent. Who must not lose it any more waits
// for WhenDurable. Whether the disk kept the bytes is checked when they are first read: a chunk
// that is not what its name says is DATA_LOSS and is removed, so that the client sends it again.
//
// Room. A tenant holds at most quota_bytes, and all together leave a little of the disk to the
// books (kReservePart); what nothing protects goes, the longest unused first (blob_index.h). What
// is used is counted from the files when the store is opened.
//
// A tenant sees its own chunks only: nobody learns from Missing what others have, or reads by
// knowing a hash; and Missing, Has and Find of what is not here touch no file, so they take the
// same time whoever else has it. Threads: any. Calls read or write the disk.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gateway/blobs/blob_index.h"
#include "gateway/blobs/disk.h"
#include "gateway/ledger/ids.h"
#include "wire/merkle.h"

namespace outboard::gateway {

struct BlobStoreOptions {
  uint64_t quota_bytes = 0;  // of each tenant; 0: none
  Disk* disk = nullptr;      // of the caller's, for tests; null: the system's
  // False: nothing reaches the disk but by SyncSome, which the test calls.
  bool sync_thread = true;
  std::function<int64_t()> unix_ms;  // empty: the system's clock
};

class BlobStore {
 public:
  // UNAVAILABLE, RESOURCE_EXHAUSTED: what the disk says; nothing is removed for what could not be
  // read.
  static absl::StatusOr<std::unique_ptr<BlobStore>> Open(const std::string& folder,
                                                         BlobStoreOptions options = {});
  ~BlobStore();  // waits for the disk; callbacks of WhenDurable are called before
  BlobStore(const BlobStore&) = delete;
  BlobStore& operator=(const BlobStore&) = delete;

  bool Has(TenantId tenant, const wire::Hash& chunk) const;
  // Those of `chunks` that are not here, in their order.
  std::vector<wire::Hash> Missing(TenantId tenant, std::span<const wire::Hash> chunks) const;

  // One chunk on its way in. Destroyed without Finish, it leaves nothing.
  class Writer {
   public:
    ~Writer();
    // OUT_OF_RANGE beyond kBlobChunkBytes. RESOURCE_EXHAUSTED: the quota or the disk is full, and
    // nothing may go.
    absl::Status Append(std::string_view bytes);
    // INVALID_ARGUMENT: the bytes are not those of the hash.
    absl::Status Finish();
    uint64_t bytes() const { return bytes_; }

   private:
    friend class BlobStore;
    Writer(BlobStore* store, TenantId tenant, std::string temporary, const wire::Hash& hash,
           int fd);
    BlobStore* const store_;
    const TenantId tenant_;
    std::string temporary_;
    wire::Hash hash_;
    wire::ChunkHasher hasher_;
    int fd_;
    uint64_t bytes_ = 0;
  };
  absl::StatusOr<std::unique_ptr<Writer>> Begin(TenantId tenant, const wire::Hash& chunk);

  // NOT_FOUND: some chunk is absent. INVALID_ARGUMENT: the root is not that of this list, or sizes
  // do not fit.
  absl::Status Commit(TenantId tenant, const wire::Hash& root, std::span<const wire::Hash> chunks,
                      uint64_t size_bytes, BlobOrigin origin = BlobOrigin::kClient);
  // A small blob of the gateway's own making: its root.
  absl::StatusOr<wire::Hash> Write(TenantId tenant, std::string_view bytes, BlobOrigin origin);

  struct Blob {
    uint64_t size_bytes = 0;
    std::vector<wire::Hash> chunks;
  };
  // NOT_FOUND; DATA_LOSS: a chunk of it was damaged. It counts as a use.
  absl::StatusOr<Blob> Find(TenantId tenant, const wire::Hash& root);
  // Verified when it is first read, and good in memory whatever happens to the file: not mapped,
  // since a page that the disk cannot read ends the process. NOT_FOUND, DATA_LOSS; UNAVAILABLE: it
  // could not be opened or read now, and stays.
  absl::StatusOr<std::string> ReadChunk(TenantId tenant, const wire::Hash& chunk);
  // The whole of a blob of at most `bytes_max`. Also RESOURCE_EXHAUSTED.
  absl::StatusOr<std::string> Read(TenantId tenant, const wire::Hash& root, uint64_t bytes_max);

  // They stay until Unprotect is called as often; all or none. NOT_FOUND: one of them is not here.
  absl::Status Protect(TenantId tenant, std::span<const wire::Hash> roots);
  void Unprotect(TenantId tenant, std::span<const wire::Hash> roots);
  // Removes those that nothing protects; the bytes that it made free.
  uint64_t RemoveIdle(TenantId tenant, std::span<const wire::Hash> roots);
  // The same for what sessions made. Once, when whatever outlived a restart is protected again.
  void RemoveIdleOfSessions();

  // Calls `done`, on the store's thread or at once, when these would survive a power cut.
  // NOT_FOUND: one is not here (any more). UNAVAILABLE: the disk did not take it.
  void WhenDurable(TenantId tenant, std::span<const wire::Hash> roots,
                   std::function<void(absl::Status)> done);

  BlobIndex::Usage UsageOf(TenantId tenant) const;
  uint64_t SizeOf(TenantId tenant, const wire::Hash& root) const;  // 0 if it is not here
  uint64_t quota_bytes() const { return options_.quota_bytes; }

  // Writes the oldest of what is not on the disk there. False if there was nothing.
  bool SyncSome();

 private:
  struct Unsynced {
    TenantId tenant;
    wire::Hash hash;
    bool root = false;  // a blob's list; else a chunk
  };
  struct Waiter {
    TenantId tenant;
    std::vector<wire::Hash> roots;
    std::function<void(absl::Status)> done;
  };
  BlobStore(std::string folder, BlobStoreOptions options);
  absl::Status Scan();
  absl::Status ScanChunks(TenantId tenant);
  absl::Status ScanRoots(TenantId tenant);
  int64_t Now() const;
  std::string TenantFolder(TenantId tenant) const;
  std::string ChunkPath(TenantId tenant, const wire::Hash& chunk,
                        BlobIndex::ChunkState state) const;
  std::string RootPath(TenantId tenant, const wire::Hash& root, BlobOrigin origin) const;
  std::string TemporaryPath() const;
  absl::Status MakeTenant(TenantId tenant);
  // Of a blob that is here. mutex_ held.
  absl::Status CommitAgain(TenantId tenant, const wire::Hash& root, BlobOrigin origin);
  // Room for so many bytes more, which are counted as used until they are given back.
  absl::Status Reserve(TenantId tenant, uint64_t bytes);
  void Unreserve(TenantId tenant, uint64_t bytes);
  bool EvictForDisk();  // false: nothing may go
  absl::Status MakeRoomOnDisk();
  void QueueSync(const Unsynced& item);                            // mutex_ held
  void RemoveFiles(TenantId tenant, const BlobIndex::Gone& gone);  // mutex_ held
  void Lose(TenantId tenant, const wire::Hash& chunk, BlobIndex::ChunkState state);
  absl::Status SyncOne(const Unsynced& item, std::set<std::string>& folders);
  absl::Status CheckDurable(const Waiter& waiter);  // mutex_ held
  void SyncThread();
  void WriteLastUses();

  const std::string folder_;
  const BlobStoreOptions options_;
  Disk system_disk_;
  Disk& disk_;

  mutable std::mutex mutex_;
  mutable BlobIndex index_;
  std::map<int64_t, uint64_t> reserved_bytes_;           // by tenant: of chunks being written
  std::set<int64_t> tenants_;                            // whose folders are there
  std::set<std::pair<int64_t, wire::Hash>> used_since_;  // blobs whose last use is not in a file
  std::deque<Unsynced> unsynced_;
  std::map<uint64_t, std::vector<Waiter>> waiters_;  // by the count of synced items they wait for
  uint64_t queued_ = 0, synced_ = 0;                 // items, since the start
  bool folders_failed_ = false;  // a folder could not be synced: what it holds is not sure
  bool stopping_ = false;
  std::condition_variable wake_;
  std::mutex sync_mutex_;  // one SyncSome at a time
  std::thread thread_;
};

}  // namespace outboard::gateway
