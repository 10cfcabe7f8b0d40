// Blobs on disk, by tenant: chunks under their hashes, and roots that list chunks.
//
//   <folder>/tmp/                       files being written; emptied when the store is opened
//   <folder>/<tenant>/fresh/<hex>       complete chunks that are perhaps not on the disk yet
//   <folder>/<tenant>/chunks/<hex>      chunks that are on the disk
//   <folder>/<tenant>/roots/<hex>       blobs: "<size> <count>\n", then the hashes, 32 bytes each
//   <folder>/<tenant>/roots/<hex>.session  the same, of blobs that a session's worker made
//
// A file appears by rename, complete. A thread of the store syncs files to the disk, so uploads do
// not wait for that; a caller that needs durability uses WhenDurable. After a crash fresh chunks
// are verified, and a blob with a missing part is dropped: a committed blob is complete or absent.
// Bytes are verified when they are first read: a chunk that does not match its hash is DATA_LOSS
// and is removed, so that the client sends it again.
//
// Space. A tenant stores at most quota_bytes and a number of objects, and all tenants together
// leave a part of the disk to the ledger (kReservePart). Unprotected blobs are evicted, the least
// recently used first (blob_index.h). Used space is counted from the files when the store is
// opened.
//
// Isolation. A tenant sees its own chunks only: Missing does not reveal what others store, and
// knowing a hash does not allow reading it. Missing, Has and Find of absent data touch no file, so
// their time does not depend on other tenants. Threads: any. Calls read or write the disk.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
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
  // Per tenant; 0: none. The index in memory grows with the last two.
  uint64_t quota_bytes = 0;  // as charged
  uint64_t objects_max = 0;  // chunks and blobs
  uint64_t list_entries_max = 0;
  Charges charges;
  Disk* disk = nullptr;  // owned by the caller, for tests; null: the system's
  // False: data reaches the disk only by SyncSome, which the test calls.
  bool sync_thread = true;
  std::function<int64_t()> unix_ms;  // empty: the system's clock
};

class BlobStore {
 public:
  // Errors: UNAVAILABLE, RESOURCE_EXHAUSTED  the disk. A failed read never removes anything.
  static absl::StatusOr<std::unique_ptr<BlobStore>> Open(const std::string& folder,
                                                         BlobStoreOptions options = {});
  ~BlobStore();  // waits for the disk; calls the WhenDurable callbacks before it returns
  BlobStore(const BlobStore&) = delete;
  BlobStore& operator=(const BlobStore&) = delete;

  bool Has(TenantId tenant, const wire::Hash& chunk) const;
  // Returns those of `chunks` that are absent, in their order.
  std::vector<wire::Hash> Missing(TenantId tenant, std::span<const wire::Hash> chunks) const;

  // Writes one incoming chunk. Destroyed without Finish, it leaves nothing.
  class Writer {
   public:
    ~Writer();
    // OUT_OF_RANGE beyond kBlobChunkBytes. RESOURCE_EXHAUSTED: the quota or the disk is full, and
    // nothing can be evicted.
    absl::Status Append(std::string_view bytes);
    // INVALID_ARGUMENT: the bytes do not match the hash.
    absl::Status Finish();
    uint64_t bytes() const { return bytes_; }

   private:
    friend class BlobStore;
    Writer(BlobStore* store, TenantId tenant, std::string temporary, const wire::Hash& hash);
    BlobStore* const store_;
    const TenantId tenant_;
    std::string temporary_;
    wire::Hash hash_;
    wire::ChunkHasher hasher_;
    int fd_ = -1;
    uint64_t bytes_ = 0;
    uint64_t reserved_ = 0;  // of the quota
  };
  absl::StatusOr<std::unique_ptr<Writer>> Begin(TenantId tenant, const wire::Hash& chunk);

  // NOT_FOUND: some chunk is absent. INVALID_ARGUMENT: the root does not match this list, or sizes
  // do not fit.
  absl::Status Commit(TenantId tenant, const wire::Hash& root, std::span<const wire::Hash> chunks,
                      uint64_t size_bytes, BlobOrigin origin = BlobOrigin::kClient);
  // Stores a small blob that the gateway itself makes, and returns its root.
  absl::StatusOr<wire::Hash> Write(TenantId tenant, std::string_view bytes, BlobOrigin origin);

  struct Blob {
    uint64_t size_bytes = 0;
    std::vector<wire::Hash> chunks;
  };
  // Counts as a use. NOT_FOUND; DATA_LOSS: a chunk of it was damaged.
  absl::StatusOr<Blob> Find(TenantId tenant, const wire::Hash& root);
  // The same, without a copy of the list: its size in bytes.
  absl::StatusOr<uint64_t> FindSize(TenantId tenant, const wire::Hash& root);
  // Returns a copy in memory, verified when the chunk is first read. Not mapped, since a page that
  // the disk cannot read would end the process. NOT_FOUND, DATA_LOSS; UNAVAILABLE: it could not be
  // opened or read now, and stays.
  absl::StatusOr<std::string> ReadChunk(TenantId tenant, const wire::Hash& chunk);
  // Returns all bytes of a blob of at most `bytes_max`. Also RESOURCE_EXHAUSTED: the blob is
  // larger.
  absl::StatusOr<std::string> Read(TenantId tenant, const wire::Hash& root, uint64_t bytes_max);

  // Protects all of `roots` or none, until Unprotect has been called as often. NOT_FOUND: one of
  // them is absent.
  absl::Status Protect(TenantId tenant, std::span<const wire::Hash> roots);
  // Removes the blobs of sessions that nothing protects any more, in parts, between which other
  // calls have their turn. Does not throw: a blob that could not be removed for want of memory
  // stays whole, in the index and on the disk, until its space is needed, or the store is opened
  // again.
  void Unprotect(TenantId tenant, std::span<const wire::Hash> roots);
  // Removes those of `roots` that nothing protects. Returns the bytes freed.
  uint64_t RemoveIdle(TenantId tenant, std::span<const wire::Hash> roots);
  // Removes unprotected blobs that sessions made. Call once after a restart, when everything that
  // survived it is protected again.
  void RemoveIdleOfSessions();

  // Calls `done`, on the store's thread or immediately, when all of `roots` would survive a power
  // cut. NOT_FOUND: one is absent, or was removed meanwhile. UNAVAILABLE: writing to the disk
  // failed.
  void WhenDurable(TenantId tenant, std::span<const wire::Hash> roots,
                   std::function<void(absl::Status)> done);

  BlobIndex::Usage UsageOf(TenantId tenant) const;
  std::map<int64_t, BlobIndex::Usage> UsageOfAll() const;
  BlobIndex::Usage RecountUsage(TenantId tenant) const;  // as BlobIndex, for tests
  // Of the disk that has the folder. UNAVAILABLE: it does not say.
  absl::StatusOr<Disk::Room> Room() const { return disk_.RoomAt(folder_); }
  uint64_t SizeOf(TenantId tenant, const wire::Hash& root) const;  // 0 if it is absent
  uint64_t quota_bytes() const { return options_.quota_bytes; }

  // Syncs the oldest unsynced items to the disk. False if there were none. Where there is no memory
  // for the first of them it throws, and it is the oldest still.
  bool SyncSome();

 private:
  struct Unsynced {
    TenantId tenant;
    wire::Hash hash;
    bool root = false;  // a blob's list; else a chunk
    friend bool operator==(const Unsynced&, const Unsynced&) = default;
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
  size_t PathBytesMax() const { return folder_.size() + 128; }
  // Likewise, in `path`: these take no memory where it has room for PathBytesMax.
  void PutChunkPath(TenantId tenant, const wire::Hash& chunk, BlobIndex::ChunkState state,
                    std::string& path) const;
  void PutRootPath(TenantId tenant, const wire::Hash& root, BlobOrigin origin,
                   std::string& path) const;
  std::string TemporaryPath() const;
  absl::Status MakeTenant(TenantId tenant);
  // Commits a blob that exists already. mutex_ held.
  absl::Status CommitAgain(TenantId tenant, const wire::Hash& root, BlobOrigin origin);
  absl::StatusOr<BlobIndex::Blob*> FindWhole(TenantId tenant,
                                             const wire::Hash& root);  // mutex_ held
  // Reserves `bytes`, which count as used until Unreserve, and looks whether there is room for a
  // further object and `list_entries`. Evicts what may go.
  absl::Status Reserve(TenantId tenant, uint64_t bytes, size_t list_entries = 0);
  // Why it does not fit; OK: it does. mutex_ held.
  absl::Status CheckQuota(TenantId tenant, uint64_t reserved_bytes, size_t list_entries) const;
  void Unreserve(TenantId tenant, uint64_t bytes);
  bool EvictForDisk();  // false: nothing can be evicted
  absl::Status MakeRoomOnDisk();
  void QueueSync(const Unsynced& item);                            // mutex_ held
  class Turns;  // a hold of mutex_ that lets others have it after a few files, and a path's room
  // The files of what has just left the index. The lock is let go of between them.
  void RemoveFiles(TenantId tenant, const BlobIndex::Gone& gone, Turns& turns);
  // Likewise; returns the bytes freed.
  uint64_t Remove(TenantId tenant, const wire::Hash& root, BlobIndex::Origins origins,
                  Turns& turns);
  void Lose(TenantId tenant, const wire::Hash& chunk, const std::string& path);
  void RemoveFile(const std::string& path) noexcept;
  absl::Status SyncFile(const std::string& path);
  absl::Status SyncOne(const Unsynced& item, std::set<std::string>& folders);
  // What follows from how a sync of the item's file went; `fresh`, `durable`: paths of a chunk.
  // mutex_ held.
  absl::Status Settle(const Unsynced& item, const std::string& fresh, const std::string& durable,
                      absl::Status status);
  absl::Status CheckDurable(const Waiter& waiter);  // mutex_ held
  static void TellWaiter(Waiter& waiter, absl::Status status);
  void TellWaiters(const absl::Status& status);  // all; without the lock, once the thread has ended
  void SyncThread();
  void WriteLastUses();

  const std::string folder_;
  const BlobStoreOptions options_;
  Disk system_disk_;
  Disk& disk_;

  mutable std::mutex mutex_;
  mutable BlobIndex index_;
  std::map<int64_t, uint64_t> reserved_bytes_;           // by tenant: of chunks being written
  std::set<int64_t> tenants_;                            // whose folders exist
  std::set<std::pair<int64_t, wire::Hash>> used_since_;  // blobs whose last use is not in a file
  std::deque<Unsynced> unsynced_;
  std::optional<Unsynced> syncing_;                  // whose file is being synced, without the lock
  bool replaced_ = false;                            // its name has been queued once more since
  std::map<uint64_t, std::vector<Waiter>> waiters_;  // by the value of synced_ they wait for
  uint64_t queued_ = 0, synced_ = 0;                 // items, since the start
  bool folders_failed_ = false;  // a folder could not be synced: its files may not be durable
  bool stopping_ = false;
  std::condition_variable wake_;
  std::mutex sync_mutex_;  // one SyncSome at a time
  std::thread thread_;
};

}  // namespace outboard::gateway
