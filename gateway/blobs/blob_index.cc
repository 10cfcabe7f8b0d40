// Invariants, after every call:
//   B1  used_bytes is the sum of what is charged for the chunks that are not absent and for all
//       lists; list_entries is the sum of the lists' lengths.
//   B2  chunk.listed is the number of times that blobs list it; an absent chunk is listed.
//   B3  blob.absent is the number of its entries whose chunk is absent.
//   B4  idle holds the blobs with protections = 0, under their used_ms.
//   B5  loose holds the chunks with listed = 0, under their loose_since_ms.
//   B6  chunk.held is the number of times that protected blobs list it; protected_bytes is the sum
//       of what is charged for the chunks that are held and not absent, and for protected lists.
#include "gateway/blobs/blob_index.h"

#include <algorithm>
#include <unordered_set>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace outboard::gateway {

void BlobIndex::Gone::Add(Gone&& more) {
  blobs.insert(blobs.end(), more.blobs.begin(), more.blobs.end());
  chunks.insert(chunks.end(), more.chunks.begin(), more.chunks.end());
  bytes += more.bytes;
}

BlobIndex::Chunk* BlobIndex::FindChunk(TenantId tenant, const wire::Hash& hash) {
  Tenant& t = tenants_[tenant.value];
  const auto found = t.chunks.find(hash);
  if (found == t.chunks.end() || found->second.state == ChunkState::kAbsent) return nullptr;
  return &found->second;
}

BlobIndex::Blob* BlobIndex::FindBlob(TenantId tenant, const wire::Hash& root) {
  Tenant& t = tenants_[tenant.value];
  const auto found = t.blobs.find(root);
  return found == t.blobs.end() ? nullptr : &found->second;
}

void BlobIndex::AddIdle(Tenant& tenant, const wire::Hash& root, const Blob& blob) {
  tenant.idle.emplace(blob.used_ms, root);
  tenant.idle_bytes += blob.size_bytes;
}

void BlobIndex::RemoveFromIdle(Tenant& tenant, const wire::Hash& root, const Blob& blob) {
  OB_CHECK(tenant.idle.erase({blob.used_ms, root}) == 1);
  tenant.idle_bytes -= blob.size_bytes;
}

void BlobIndex::AddLoose(Tenant& tenant, const wire::Hash& hash, Chunk& chunk, int64_t now_ms) {
  chunk.loose_since_ms = now_ms;
  tenant.loose.emplace(now_ms, hash);
  tenant.idle_bytes += chunk.size_bytes;
}

void BlobIndex::RemoveFromLoose(Tenant& tenant, const wire::Hash& hash, const Chunk& chunk) {
  OB_CHECK(tenant.loose.erase({chunk.loose_since_ms, hash}) == 1);
  tenant.idle_bytes -= chunk.size_bytes;
}

void BlobIndex::Hold(Tenant& tenant, const Blob& blob) const {
  tenant.protected_bytes += charges_.OfList(blob.chunks.size());
  for (const wire::Hash& hash : blob.chunks) {
    Chunk& chunk = tenant.chunks.at(hash);
    if (chunk.held++ == 0 && chunk.state != ChunkState::kAbsent)
      tenant.protected_bytes += charges_.OfChunk(chunk.size_bytes);
  }
}

void BlobIndex::Unhold(Tenant& tenant, const Blob& blob) const {
  tenant.protected_bytes -= charges_.OfList(blob.chunks.size());
  for (const wire::Hash& hash : blob.chunks) {
    Chunk& chunk = tenant.chunks.at(hash);
    if (--chunk.held == 0 && chunk.state != ChunkState::kAbsent)
      tenant.protected_bytes -= charges_.OfChunk(chunk.size_bytes);
  }
}

void BlobIndex::AddChunk(TenantId tenant, const wire::Hash& hash, uint32_t size_bytes,
                         ChunkState state, int64_t now_ms) {
  Tenant& t = tenants_[tenant.value];
  Chunk& chunk = t.chunks[hash];
  if (chunk.state != ChunkState::kAbsent) return;
  chunk.state = state;
  chunk.size_bytes = size_bytes;
  chunk.verified = false;
  t.used_bytes += charges_.OfChunk(size_bytes);
  if (chunk.held > 0) t.protected_bytes += charges_.OfChunk(size_bytes);
  if (chunk.listed == 0) return AddLoose(t, hash, chunk, now_ms);
  // A lost chunk was added again. Rare enough to search all blobs.
  for (auto& [root, blob] : t.blobs) {
    blob.absent -= static_cast<uint32_t>(std::count(blob.chunks.begin(), blob.chunks.end(), hash));
  }
}

void BlobIndex::RemoveChunk(Tenant& tenant, const wire::Hash& hash, Gone& gone) const {
  const auto found = tenant.chunks.find(hash);
  OB_CHECK(found != tenant.chunks.end());
  if (found->second.state != ChunkState::kAbsent) {
    const uint64_t charged = charges_.OfChunk(found->second.size_bytes);
    tenant.used_bytes -= charged;
    gone.bytes += charged;
    gone.chunks.emplace_back(hash, found->second.state);
  }
  tenant.chunks.erase(found);
}

void BlobIndex::LoseChunk(TenantId tenant, const wire::Hash& hash, int64_t now_ms) {
  Tenant& t = tenants_[tenant.value];
  const auto found = t.chunks.find(hash);
  if (found == t.chunks.end() || found->second.state == ChunkState::kAbsent) return;
  Chunk& chunk = found->second;
  if (chunk.listed == 0) {
    RemoveFromLoose(t, hash, chunk);
    Gone gone;
    return RemoveChunk(t, hash, gone);
  }
  chunk.state = ChunkState::kAbsent;
  t.used_bytes -= charges_.OfChunk(chunk.size_bytes);
  if (chunk.held > 0) t.protected_bytes -= charges_.OfChunk(chunk.size_bytes);
  for (auto& [root, blob] : t.blobs) {
    blob.absent += static_cast<uint32_t>(std::count(blob.chunks.begin(), blob.chunks.end(), hash));
  }
}

void BlobIndex::AddBlob(TenantId tenant, const wire::Hash& root, Blob blob) {
  Tenant& t = tenants_[tenant.value];
  if (const auto known = t.blobs.find(root); known != t.blobs.end()) {
    if (blob.origin == BlobOrigin::kClient) known->second.origin = BlobOrigin::kClient;
    return Use(tenant, root, blob.used_ms);
  }
  blob.protections = 0;
  blob.absent = 0;
  for (const wire::Hash& hash : blob.chunks) {
    const auto found = t.chunks.find(hash);
    OB_CHECK(found != t.chunks.end() && found->second.state != ChunkState::kAbsent);
    if (found->second.listed++ == 0) RemoveFromLoose(t, hash, found->second);
  }
  t.used_bytes += charges_.OfList(blob.chunks.size());
  t.list_entries += blob.chunks.size();
  AddIdle(t, root, blob);
  t.blobs.emplace(root, std::move(blob));
}

void BlobIndex::Use(TenantId tenant, const wire::Hash& root, int64_t now_ms) {
  Tenant& t = tenants_[tenant.value];
  const auto found = t.blobs.find(root);
  if (found == t.blobs.end() || found->second.used_ms >= now_ms) return;
  if (found->second.protections > 0) {
    found->second.used_ms = now_ms;
    return;
  }
  RemoveFromIdle(t, root, found->second);
  found->second.used_ms = now_ms;
  AddIdle(t, root, found->second);
}

absl::Status BlobIndex::Protect(TenantId tenant, std::span<const wire::Hash> roots) {
  Tenant& t = tenants_[tenant.value];
  for (const wire::Hash& root : roots) {
    const auto found = t.blobs.find(root);
    if (found == t.blobs.end() || found->second.absent > 0)
      return absl::NotFoundError(absl::StrCat("no blob ", wire::ToHex(root), " is here"));
  }
  for (const wire::Hash& root : roots) {
    Blob& blob = t.blobs.at(root);
    if (blob.protections++ > 0) continue;
    RemoveFromIdle(t, root, blob);
    Hold(t, blob);
  }
  return absl::OkStatus();
}

BlobIndex::Gone BlobIndex::Unprotect(TenantId tenant, std::span<const wire::Hash> roots,
                                     int64_t now_ms) {
  Tenant& t = tenants_[tenant.value];
  Gone gone;
  for (const wire::Hash& root : roots) {
    const auto found = t.blobs.find(root);
    OB_CHECK(found != t.blobs.end() && found->second.protections > 0);
    Blob& blob = found->second;
    if (--blob.protections > 0) continue;
    Unhold(t, blob);
    blob.used_ms = std::max(blob.used_ms, now_ms);
    AddIdle(t, root, blob);
    if (blob.origin == BlobOrigin::kSession) RemoveBlob(t, root, gone);
  }
  return gone;
}

void BlobIndex::RemoveBlob(Tenant& tenant, const wire::Hash& root, Gone& gone) const {
  const auto found = tenant.blobs.find(root);
  OB_CHECK(found != tenant.blobs.end() && found->second.protections == 0);
  RemoveFromIdle(tenant, root, found->second);
  const Blob blob = std::move(found->second);
  tenant.blobs.erase(found);
  gone.blobs.emplace_back(root, blob.origin);
  const uint64_t charged = charges_.OfList(blob.chunks.size());
  tenant.used_bytes -= charged;
  tenant.list_entries -= blob.chunks.size();
  gone.bytes += charged;
  for (const wire::Hash& hash : blob.chunks) {
    if (--tenant.chunks.at(hash).listed == 0) RemoveChunk(tenant, hash, gone);
  }
}

BlobIndex::Gone BlobIndex::RemoveIdle(TenantId tenant, std::span<const wire::Hash> roots) {
  Tenant& t = tenants_[tenant.value];
  Gone gone;
  for (const wire::Hash& root : roots) {
    const auto found = t.blobs.find(root);
    if (found != t.blobs.end() && found->second.protections == 0) RemoveBlob(t, root, gone);
  }
  return gone;
}

std::vector<std::pair<TenantId, BlobIndex::Gone>> BlobIndex::RemoveIdleOfSessions() {
  std::vector<std::pair<TenantId, Gone>> all;
  for (auto& [id, tenant] : tenants_) {
    std::vector<wire::Hash> roots;
    for (const auto& [root, blob] : tenant.blobs) {
      if (blob.origin == BlobOrigin::kSession && blob.protections == 0) roots.push_back(root);
    }
    if (!roots.empty()) all.emplace_back(TenantId{id}, RemoveIdle(TenantId{id}, roots));
  }
  return all;
}

std::optional<BlobIndex::Gone> BlobIndex::Evict(TenantId tenant, int64_t now_ms) {
  Tenant& t = tenants_[tenant.value];
  const bool may_loose = !t.loose.empty() && t.loose.begin()->first <= now_ms - kLooseMs;
  Gone gone;
  if (may_loose && (t.idle.empty() || t.loose.begin()->first < t.idle.begin()->first)) {
    const wire::Hash hash = t.loose.begin()->second;
    RemoveFromLoose(t, hash, t.chunks.at(hash));
    RemoveChunk(t, hash, gone);
    return gone;
  }
  if (t.idle.empty()) return std::nullopt;
  const wire::Hash root = t.idle.begin()->second;
  RemoveBlob(t, root, gone);
  return gone;
}

std::optional<std::pair<TenantId, BlobIndex::Gone>> BlobIndex::EvictAnywhere(int64_t now_ms) {
  std::vector<std::pair<uint64_t, int64_t>> most;
  for (const auto& [id, tenant] : tenants_) most.emplace_back(tenant.idle_bytes, id);
  std::sort(most.rbegin(), most.rend());
  for (const auto& [bytes, id] : most) {
    if (auto gone = Evict(TenantId{id}, now_ms)) return std::pair(TenantId{id}, *std::move(gone));
  }
  return std::nullopt;
}

uint64_t BlobIndex::UsedBytes(TenantId tenant) const {
  const auto found = tenants_.find(tenant.value);
  return found == tenants_.end() ? 0 : found->second.used_bytes;
}

BlobIndex::Usage BlobIndex::UsageOf(TenantId tenant) const {
  const auto found = tenants_.find(tenant.value);
  if (found == tenants_.end()) return {};
  const Tenant& t = found->second;
  return {.used_bytes = t.used_bytes,
          .protected_bytes = t.protected_bytes,
          .objects = t.chunks.size() + t.blobs.size(),
          .list_entries = t.list_entries};
}

BlobIndex::Usage BlobIndex::RecountUsage(TenantId tenant) const {
  const auto found = tenants_.find(tenant.value);
  if (found == tenants_.end()) return {};
  const Tenant& t = found->second;
  Usage usage{.objects = t.chunks.size() + t.blobs.size()};
  for (const auto& [hash, chunk] : t.chunks)
    if (chunk.state != ChunkState::kAbsent) usage.used_bytes += charges_.OfChunk(chunk.size_bytes);
  std::unordered_set<wire::Hash, HashOfHash> counted;
  for (const auto& [root, blob] : t.blobs) {
    usage.used_bytes += charges_.OfList(blob.chunks.size());
    usage.list_entries += blob.chunks.size();
    if (blob.protections == 0) continue;
    usage.protected_bytes += charges_.OfList(blob.chunks.size());
    for (const wire::Hash& hash : blob.chunks) {
      const Chunk& chunk = t.chunks.at(hash);
      if (chunk.state != ChunkState::kAbsent && counted.insert(hash).second)
        usage.protected_bytes += charges_.OfChunk(chunk.size_bytes);
    }
  }
  return usage;
}

}  // namespace outboard::gateway
