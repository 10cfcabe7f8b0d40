// The index of the blob store: blobs and chunks of each tenant, and which of them to evict when
// space is needed. No files, no clock, no threads (its owner holds a lock).
//
// A blob is a root and the list of its chunks. A chunk counts towards its tenant's use once,
// however many blobs list it. A blob that nothing protects is idle. A chunk that no blob lists is
// loose: it was uploaded for a blob that is not committed yet. Idle blobs and loose chunks are
// evicted in order of last use; a loose chunk not before kLooseMs, since the upload that it belongs
// to may still be running. Protected blobs are never evicted.
//
// What things cost is counted, not only what they hold (Charges): a tiny object takes a file and an
// entry here, and a list takes 32 bytes for each chunk that it names, here and on the disk.
//
// Answers about one tenant never read the data of another: what tenant B learns, and how long the
// answer takes, does not depend on what tenant A stores.
//
// Where memory ends, a call that throws has changed nothing, and what takes something back does not
// throw.
//
// Errors: NOT_FOUND  no such blob, or some of its chunks are absent. Times are Unix milliseconds.
#pragma once

#include <algorithm>
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

// The creator of a blob. A client's blob stays, idle, until its space is needed: this spares the
// client the upload next time. A blob made by a session's worker has no later reader: it is removed
// with its last protection.
enum class BlobOrigin { kClient, kSession };

// How much each object counts, against the quota and in Usage.
struct Charges {
  uint64_t object_bytes_min = 0;  // a chunk or list that is smaller counts as this
  uint64_t list_entry_bytes = 0;  // for each chunk that a blob lists

  uint64_t OfChunk(uint64_t size_bytes) const { return std::max(size_bytes, object_bytes_min); }
  uint64_t OfList(size_t chunks) const {
    return std::max(chunks * list_entry_bytes, object_bytes_min);
  }
};

class BlobIndex {
 public:
  explicit BlobIndex(const Charges& charges = {}) : charges_(charges) {}

  enum class ChunkState {
    kAbsent,   // was damaged; blobs still list it, and are incomplete until it is uploaded again
    kFresh,    // complete, but perhaps not on the disk yet
    kDurable,  // complete, and survives a power cut
  };
  struct Chunk {
    ChunkState state = ChunkState::kAbsent;
    uint32_t size_bytes = 0;
    uint32_t listed = 0;  // how often blobs list it; a blob that has it twice counts twice
    uint32_t held = 0;    // how often protected blobs list it
    int64_t loose_since_ms = 0;
    bool verified = false;  // read and found intact since the store was opened
  };
  using ByUse = std::set<std::pair<int64_t, wire::Hash>>;  // by last use
  struct Blob {
    uint64_t size_bytes = 0;
    std::vector<wire::Hash> chunks;
    BlobOrigin origin = BlobOrigin::kClient;
    bool durable = false;  // the list is on disk
    // A sync of the list failed, once: the next would go well, and say nothing of what was lost.
    bool sync_failed = false;
    uint32_t protections = 0;
    uint32_t absent = 0;  // number of absent chunks, counted as `listed` is
    int64_t used_ms = 0;
    ByUse::node_type place = {};  // in Tenant::idle, while it is protected
  };
  struct Usage {
    uint64_t used_bytes = 0;       // as charged
    uint64_t protected_bytes = 0;  // lists of protected blobs, and their chunks, each once
    uint64_t objects = 0;          // chunks and blobs
    uint64_t list_entries = 0;     // of all blobs
    bool operator==(const Usage&) const = default;
  };
  // Blobs and chunks that left the index; the caller removes their files.
  struct Gone {
    std::vector<std::pair<wire::Hash, BlobOrigin>> blobs;
    std::vector<std::pair<wire::Hash, ChunkState>> chunks;
    uint64_t bytes = 0;  // as charged
  };

  // Returns null if there is no such chunk, or it is absent.
  Chunk* FindChunk(TenantId tenant, const wire::Hash& hash);
  // Returns null if there is no such blob. The blob may lack chunks.
  Blob* FindBlob(TenantId tenant, const wire::Hash& root);

  // Adds a chunk. No effect if the tenant has it.
  void AddChunk(TenantId tenant, const wire::Hash& hash, uint32_t size_bytes, ChunkState state,
                int64_t now_ms);
  // Marks a damaged chunk as absent. Lookups do not find blobs that list it until it is added
  // again.
  void LoseChunk(TenantId tenant, const wire::Hash& hash, int64_t now_ms);

  // Adds a blob whose chunks are all present. If it exists, marks it as used; origin kClient takes
  // precedence over kSession.
  void AddBlob(TenantId tenant, const wire::Hash& root, Blob blob);
  void Use(TenantId tenant, const wire::Hash& root, int64_t now_ms);

  // Protects all of `roots` or none; a root that is named several times counts as often.
  absl::Status Protect(TenantId tenant, std::span<const wire::Hash> roots);
  // Undoes Protect for `roots`, which must be protected. Blobs of sessions that nothing protects
  // any more are the caller's to remove. Does not throw.
  void Unprotect(TenantId tenant, std::span<const wire::Hash> roots, int64_t now_ms);

  // Removes the blob if nothing protects it, whatever its origin, or if a session made it.
  enum class Origins { kAny, kSession };
  Gone RemoveIdle(TenantId tenant, const wire::Hash& root, Origins origins);
  // The blobs of sessions that nothing protects, of all tenants.
  std::vector<std::pair<TenantId, wire::Hash>> IdleOfSessions() const;
  // Evicts the least recently used blob or loose chunk; nullopt if all is protected. May free no
  // bytes: a blob whose chunks other blobs list.
  std::optional<Gone> Evict(TenantId tenant, int64_t now_ms);
  // Evicts from the tenant that has the most evictable bytes: the tenant that fills the disk makes
  // space.
  std::optional<std::pair<TenantId, Gone>> EvictAnywhere(int64_t now_ms);

  uint64_t UsedBytes(TenantId tenant) const;
  Usage UsageOf(TenantId tenant) const;
  std::map<int64_t, Usage> UsageOfAll() const;  // by tenant
  // Computes what UsageOf returns again, by visiting every chunk and blob. For tests of UsageOf.
  Usage RecountUsage(TenantId tenant) const;

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
    ByUse idle;
    ByUse loose;  // by loose_since_ms
    uint64_t used_bytes = 0;
    uint64_t protected_bytes = 0;
    uint64_t list_entries = 0;
    uint64_t idle_bytes = 0;  // of idle blobs as if they shared no chunks, and of loose chunks
  };
  static void AddIdle(Tenant& tenant, Blob& blob);  // at its place
  static void RemoveFromIdle(Tenant& tenant, const wire::Hash& root, Blob& blob);
  static void RemoveFromLoose(Tenant& tenant, const wire::Hash& hash, const Chunk& chunk);
  void Hold(Tenant& tenant, const Blob& blob) const;
  void Unhold(Tenant& tenant, const Blob& blob) const;
  // `gone`, or null, has room for it.
  void RemoveChunk(Tenant& tenant, const wire::Hash& hash, Gone* gone) const;
  // Removes an idle blob, and those of its chunks that no other blob lists.
  void RemoveBlob(Tenant& tenant, const wire::Hash& root, Gone& gone) const;

  const Charges charges_;
  std::map<int64_t, Tenant> tenants_;
};

}  // namespace outboard::gateway
