// Decides which blobs stay: those under names that tenants gave, and those of live sessions. The
// only code that protects blobs in the store and ends their protection.
//
// A name protects its manifest and the blobs that the manifest lists. Replacing a name is one
// transaction, after all of the new content is on disk, so at any time the name holds all of the
// old or all of the new content. A session protects its last snapshot, the blobs of Puts that this
// snapshot does not hold, and uploads of its worker that it has not named yet (Keep in
// fleet.proto).
//
// Threads: any. `done` is called exactly once, immediately or from the store's thread; the change
// is then on disk.
// Errors: NOT_FOUND  no such name; a blob of a list is absent or incomplete
//         INVALID_ARGUMENT  a blob of a list has another size; those of names.h and manifest.h
//         RESOURCE_EXHAUSTED, FAILED_PRECONDITION  (names.h, manifest.h)
//         ABORTED      the session has ended
//         UNAVAILABLE  the disk
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gateway/blobs/blob_store.h"
#include "gateway/blobs/blob_uses.h"
#include "gateway/blobs/manifest.h"
#include "gateway/blobs/names.h"

namespace outboard::gateway {

class BlobRetention final : public BlobUses {
 public:
  using Done = std::function<void(absl::Status)>;

  // `names_path` is the accounts file. `store` must outlive this object. Protects the blobs of all
  // names.
  static absl::StatusOr<std::unique_ptr<BlobRetention>> Open(BlobStore* store,
                                                             const std::string& names_path,
                                                             std::function<WallTime()> now);

  // ---- names ----
  Names& names() { return *names_; }
  struct Stored {
    NameRow row;
    proto::Checkpoint checkpoint;
  };
  absl::StatusOr<Stored> Get(TenantId tenant, std::string_view name);
  void Set(TenantId tenant, const std::string& name, const proto::Checkpoint& checkpoint,
           Done done);
  // Removes the name. Returns the bytes freed: those of blobs that nothing else protects.
  absl::StatusOr<uint64_t> Remove(TenantId tenant, std::string_view name);
  struct Usage {
    uint64_t used_bytes = 0;
    uint64_t protected_bytes = 0;
    uint64_t pinned_bytes = 0;  // under pinned names, each blob once
    uint64_t quota_bytes = 0;
    uint64_t names = 0;
  };
  absl::StatusOr<Usage> UsageOf(TenantId tenant);
  absl::Status Pin(TenantId tenant, std::string_view name, bool pinned);

  // ---- sessions ----
  // Before any of the others; again for a session that goes on. Waits for no disk.
  void BeginSession(TenantId tenant, const SessionId& session) override;
  absl::StatusOr<uint64_t> SizeOf(TenantId tenant, const wire::Hash& root) override;
  absl::Status UseBlob(TenantId tenant, const SessionId& session, const wire::Hash& root,
                       uint64_t seq, uint64_t behind_seq) override;
  // Its worker has committed this blob, and will say what for by one of the next two.
  absl::Status UploadedBy(TenantId tenant, const SessionId& session, const wire::Hash& root);
  // Makes `manifest` the session's last snapshot, which holds everything up to item `seq`. Once it
  // is on disk, calls `write`, which makes the session's row name it and reports the result. Until
  // then, and if `write` fails, the previous snapshot stays.
  using Write = std::function<void(Done written)>;
  void KeepSnapshot(TenantId tenant, const SessionId& session, const wire::Hash& manifest,
                    uint64_t seq, Write write, Done done);
  // The same of one rank of several, whose part this is. The session's snapshot is another once
  // PartsKept says so; until then the part is kept beside the last one, kSnapshotPartsMax at most.
  void KeepPart(TenantId tenant, const SessionId& session, const wire::Hash& manifest, uint64_t seq,
                Write write, Done done);
  void PartsKept(const SessionId& session, uint64_t seq,
                 const std::vector<wire::Hash>& manifests) override;
  void ForgetParts(const SessionId& session, uint64_t seq) override;
  // Stores `manifest`, a checkpoint, under `name`.
  void KeepCheckpoint(TenantId tenant, const SessionId& session, const std::string& name,
                      const wire::Hash& manifest, Done done);
  // Restores the protection of a snapshot after a restart, for each session that continues and has
  // one.
  absl::Status RestoreSnapshot(TenantId tenant, const SessionId& session,
                               std::span<const wire::Hash> manifests) override;
  // Call once after all RestoreSnapshot calls: removes blobs of sessions that nothing protects.
  void RestoreDone() { store_->RemoveIdleOfSessions(); }
  void EndSession(const SessionId& session) override;  // does not throw

 private:
  struct Session {
    TenantId tenant;
    std::vector<wire::Hash> snapshot;     // its manifest and the blobs that the manifest names
    std::map<uint64_t, wire::Hash> puts;  // by seq
    std::multiset<wire::Hash> uploaded;   // by its worker, not named yet
    // Of its ranks, behind the last snapshot: by item and manifest.
    std::map<std::pair<uint64_t, wire::Hash>, std::vector<wire::Hash>> parts;
    std::vector<wire::Hash> forgotten;  // those of parts, until it is time to wait for a disk
  };
  BlobRetention(BlobStore* store, std::unique_ptr<Names> names, std::function<WallTime()> now)
      : store_(store), names_(std::move(names)), now_(std::move(now)) {}
  absl::Status ProtectNames();
  struct PinnedRoot {
    uint32_t names = 0;  // how many pinned names have it
    uint64_t bytes = 0;
  };
  using PinnedRoots = std::map<wire::Hash, PinnedRoot>;
  // The roots of a name, and room in pinned_, for CountPinned.
  PinnedRoots ToCount(TenantId tenant, std::span<const wire::Hash> roots);
  // Counts the roots of a name as pinned, or no longer. Takes no memory: its row has changed.
  void CountPinned(TenantId tenant, PinnedRoots roots, bool pinned) noexcept;
  // Protects `roots`, waits until they are durable, then writes the row.
  void Name(TenantId tenant, const NameRow& row, std::vector<wire::Hash> roots, Done done);
  class Protected;
  absl::StatusOr<std::shared_ptr<Protected>> SnapshotRoots(TenantId tenant,
                                                           const wire::Hash& manifest);
  // Moves the Puts up to `seq` from `uses` to `free`.
  static void ForgetPuts(Session& uses, uint64_t seq, std::vector<wire::Hash>& free);
  static size_t CountOf(const Session& uses);
  // Exchanges the new snapshot's roots for those that it makes unnecessary.
  static void Replace(Session& uses, uint64_t seq, Protected& kept);
  static void AddPart(Session& uses, const std::pair<uint64_t, wire::Hash>& key,
                      std::vector<wire::Hash>& roots);
  // Takes what a snapshot names out of `uses.uploaded`, and adds it to `free`.
  static void Claim(Session& uses, const std::vector<wire::Hash>& snapshot,
                    std::vector<wire::Hash>& free);
  void Forget(TenantId tenant, const SessionId& session, const std::vector<wire::Hash>& uploaded);

  BlobStore* const store_;
  const std::unique_ptr<Names> names_;
  const std::function<WallTime()> now_;

  std::mutex names_mutex_;
  // The roots that each name protects, by tenant and name.
  std::map<std::pair<int64_t, std::string>, std::vector<wire::Hash>> held_;
  struct Pinned {
    PinnedRoots roots;
    uint64_t bytes = 0;
  };
  std::mutex pinned_mutex_;           // never held during disk I/O
  std::map<int64_t, Pinned> pinned_;  // by tenant
  std::mutex sessions_mutex_;
  std::map<SessionId, Session> sessions_;  // live sessions
};

}  // namespace outboard::gateway
