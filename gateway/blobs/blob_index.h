// What the blob store holds, tenant by tenant, and what may go when room is needed: no files, no
// clock, no threads (its owner holds a lock).
//
// A blob is a root and the list of its chunks. A chunk counts towards its tenant's use once,
// however many blobs list it. A blob that nothing protects is idle; a chunk that no blob lists is
// loose: it was uploaded for a blob that is not committed yet. Idle blobs and loose chunks go, the
// one that was used longest ago first, when room is needed; a loose chunk not before kLooseMs,
// since somebody may still be uploading what it belongs to. What is protected never goes.
//
// Nothing of another tenant is looked at to answer about one: what B learns, and in which time,
// does not depend on what A holds.
//
// Errors: NOT_FOUND  no such blob, or one whose chunks are not all here. Times are Unix
// milliseconds.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "gateway/ledger/ids.h"
#include "wire/merkle.h"

namespace outboard::gateway {

inline constexpr int64_t kLooseMs = 10 * 60 * 1000;

// Who made a blob. One of a client stays, idle, until its room is needed: the client is spared the
// upload when it comes again. One that a session's worker made has no one to come again: it goes
// with its last protection.
enum class BlobOrigin { kClient, kSession };

class BlobIndex {
 public:
  enum class ChunkState {
    kAbsent,   // was damaged; blobs still list it, and wait for it to be uploaded again
    kFresh,    // whole, but perhaps not on the disk yet
    kDurable,  // whole after a power cut, too
  };
  struct Chunk {
    ChunkState state = ChunkState::kAbsent;
    uint32_t size_bytes = 0;
    uint32_t listed = 0;  // by blobs; twice by one that has it twice
    int64_t loose_since_ms = 0;
    bool verified = false;  // read and found good since the store was opened
  };
  struct Blob {
    uint64_t size_bytes = 0;
    std::vector<wire::Hash> chunks;
    BlobOrigin origin = BlobOrigin::kClient;
    bool durable = false;  // its list
    uint32_t protections = 0;
    uint32_t absent = 0;  // of its chunks, counted as `listed` is
    int64_t used_ms = 0;
  };
  struct Usage {
    uint64_t used_bytes = 0;
    uint64_t protected_bytes = 0;  // chunks of protected blobs, each once
  };
  // Files to be removed.
  struct Gone {
    std::vector<std::pair<wire::Hash, BlobOrigin>> blobs;
    std::vector<std::pair<wire::Hash, ChunkState>> chunks;
    uint64_t bytes = 0;  // of the chunks
    void Add(Gone&& more);
  };

  // Null: no such chunk, or it is absent.
  Chunk* FindChunk(TenantId tenant, const wire::Hash& hash);
  // Null: no such blob. It may lack chunks.
  Blob* FindBlob(TenantId tenant, const wire::Hash& root);

  // No effect if it is here.
  void AddChunk(TenantId tenant, const wire::Hash& hash, uint32_t size_bytes, ChunkState state,
                int64_t now_ms);
  // It is damaged. Blobs that list it are not found until it is here again.
  void LoseChunk(TenantId tenant, const wire::Hash& hash, int64_t now_ms);

  // All its chunks are here. If it is known, it was used; kClient goes before kSession.
  void AddBlob(TenantId tenant, const wire::Hash& root, Blob blob);
  void Use(TenantId tenant, const wire::Hash& root, int64_t now_ms);

  // All or none of `roots`; one may be named several times and then counts so often.
  absl::Status Protect(TenantId tenant, std::span<const wire::Hash> roots);
  // What was protected. Blobs of sessions that nothing protects any more are gone.
  Gone Unprotect(TenantId tenant, std::span<const wire::Hash> roots, int64_t now_ms);

  // Those of `roots` that nothing protects, whoever made them.
  Gone RemoveIdle(TenantId tenant, std::span<const wire::Hash> roots);
  // Blobs of sessions that nothing protects, of all tenants.
  std::vector<std::pair<TenantId, Gone>> RemoveIdleOfSessions();
  // The blob or chunk that is to go first; nothing if all is protected. May be of no bytes: a blob
  // whose chunks others list.
  std::optional<Gone> Evict(TenantId tenant, int64_t now_ms);
  // Of all tenants, from the one that has most which may go: who fills the disk makes room.
  std::optional<std::pair<TenantId, Gone>> EvictAnywhere(int64_t now_ms);

  uint64_t UsedBytes(TenantId tenant) const;
  Usage UsageOf(TenantId tenant) const;  // looks at every protected blob

 private:
  struct HashOfHash {
    size_t operator()(const wire::Hash& hash) const {
      size_t first;
      std::memcpy(&first, hash.data(), sizeof first);
      return first;
    }
  };
  struct Tenant {
    std::unordered_map<wire::Hash, Chunk, HashOfHash> chunks;
    std::unordered_map<wire::Hash, Blob, HashOfHash> blobs;
    std::set<std::pair<int64_t, wire::Hash>> idle;   // by last use
    std::set<std::pair<int64_t, wire::Hash>> loose;  // by the time since when
    uint64_t used_bytes = 0;
    uint64_t idle_bytes = 0;  // of idle blobs as if they shared nothing, and of loose chunks
  };
  static void AddIdle(Tenant& tenant, const wire::Hash& root, const Blob& blob);
  static void RemoveFromIdle(Tenant& tenant, const wire::Hash& root, const Blob& blob);
  static void AddLoose(Tenant& tenant, const wire::Hash& hash, Chunk& chunk, int64_t now_ms);
  static void RemoveFromLoose(Tenant& tenant, const wire::Hash& hash, const Chunk& chunk);
  static void RemoveChunk(Tenant& tenant, const wire::Hash& hash, Gone& gone);
  // An idle blob, and its chunks that no other lists.
  static void RemoveBlob(Tenant& tenant, const wire::Hash& root, Gone& gone);

  std::map<int64_t, Tenant> tenants_;
};

}  // namespace outboard::gateway
