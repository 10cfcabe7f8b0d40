// Invariants, after every call:
//   B1  used_bytes is the sum of what is charged for the chunks that are not absent and for all
//       lists; list_entries is the sum of the lists' lengths.
//   B2  chunk.listed is the number of times that blobs list it; an absent chunk is listed.
//   B3  blob.absent is the number of its entries whose chunk is absent.
//   B4  idle holds the blobs with protections = 0, under their used_ms; the others have the place
//       that they had there, so that it takes no memory to give it back.
//   B5  loose holds the chunks with listed = 0, under their loose_since_ms.
//   B6  chunk.held is the number of times that protected blobs list it; protected_bytes is the sum
//       of what is charged for the chunks that are held and not absent, and for protected lists.
#include "gateway/blobs/blob_index.h"

#include <algorithm>
#include <unordered_set>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace outboard::gateway {

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

void BlobIndex::AddIdle(Tenant& tenant, Blob& blob) {
  blob.place.value().first = blob.used_ms;
  tenant.idle.insert(std::move(blob.place));
  tenant.idle_bytes += blob.size_bytes;
}

void BlobIndex::RemoveFromIdle(Tenant& tenant, const wire::Hash& root, Blob& blob) {
  blob.place = tenant.idle.extract({blob.used_ms, root});
  OB_CHECK(!blob.place.empty());
  tenant.idle_bytes -= blob.size_bytes;
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
  ByUse loose = {{now_ms, hash}};  // before anything changes
  Chunk& chunk = t.chunks[hash];
  if (chunk.state != ChunkState::kAbsent) return;
  chunk.state = state;
  chunk.size_bytes = size_bytes;
  chunk.verified = false;
  t.used_bytes += charges_.OfChunk(size_bytes);
  if (chunk.held > 0) t.protected_bytes += charges_.OfChunk(size_bytes);
  if (chunk.listed == 0) {
    chunk.loose_since_ms = now_ms;
    t.loose.merge(loose);
    t.idle_bytes += chunk.size_bytes;
    return;
  }
  // A lost chunk was added again. Rare enough to search all blobs.
  for (auto& [root, blob] : t.blobs) {
    blob.absent -= static_cast<uint32_t>(std::count(blob.chunks.begin(), blob.chunks.end(), hash));
  }
}

void BlobIndex::RemoveChunk(Tenant& tenant, const wire::Hash& hash, Gone* gone) const {
  const auto found = tenant.chunks.find(hash);
  OB_CHECK(found != tenant.chunks.end());
  if (found->second.state != ChunkState::kAbsent) {
    const uint64_t charged = charges_.OfChunk(found->second.size_bytes);
    tenant.used_bytes -= charged;
    if (gone != nullptr) {
      gone->bytes += charged;
      gone->chunks.emplace_back(hash, found->second.state);
    }
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
    return RemoveChunk(t, hash, nullptr);
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
  ByUse idle = {{blob.used_ms, root}};  // what may throw comes before what changes
  Blob& added = t.blobs.try_emplace(root, std::move(blob)).first->second;
  added.protections = 0;
  added.absent = 0;
  for (const wire::Hash& hash : added.chunks) {
    const auto found = t.chunks.find(hash);
    OB_CHECK(found != t.chunks.end() && found->second.state != ChunkState::kAbsent);
    if (found->second.listed++ == 0) RemoveFromLoose(t, hash, found->second);
  }
  t.used_bytes += charges_.OfList(added.chunks.size());
  t.list_entries += added.chunks.size();
  added.place = idle.extract(idle.begin());
  AddIdle(t, added);
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
  AddIdle(t, found->second);
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

void BlobIndex::Unprotect(TenantId tenant, std::span<const wire::Hash> roots, int64_t now_ms) {
  Tenant& t = tenants_[tenant.value];
  for (const wire::Hash& root : roots) {
    const auto found = t.blobs.find(root);
    OB_CHECK(found != t.blobs.end() && found->second.protections > 0);
    Blob& blob = found->second;
    if (--blob.protections > 0) continue;
    Unhold(t, blob);
    blob.used_ms = std::max(blob.used_ms, now_ms);
    AddIdle(t, blob);
  }
}

void BlobIndex::RemoveBlob(Tenant& tenant, const wire::Hash& root, Gone& gone) const {
  const auto found = tenant.blobs.find(root);
  OB_CHECK(found != tenant.blobs.end() && found->second.protections == 0);
  gone.blobs.emplace_back(root, found->second.origin);
  gone.chunks.reserve(found->second.chunks.size());  // nothing throws from here on
  RemoveFromIdle(tenant, root, found->second);
  const Blob blob = std::move(found->second);
  tenant.blobs.erase(found);
  const uint64_t charged = charges_.OfList(blob.chunks.size());
  tenant.used_bytes -= charged;
  tenant.list_entries -= blob.chunks.size();
  gone.bytes += charged;
  for (const wire::Hash& hash : blob.chunks) {
    if (--tenant.chunks.at(hash).listed == 0) RemoveChunk(tenant, hash, &gone);
  }
}

BlobIndex::Gone BlobIndex::RemoveIdle(TenantId tenant, const wire::Hash& root, Origins origins) {
  Tenant& t = tenants_[tenant.value];
  const auto found = t.blobs.find(root);
  const bool goes = found != t.blobs.end() && found->second.protections == 0 &&
                    (origins == Origins::kAny || found->second.origin == BlobOrigin::kSession);
  Gone gone;
  if (goes) RemoveBlob(t, root, gone);
  return gone;
}

std::vector<std::pair<TenantId, wire::Hash>> BlobIndex::IdleOfSessions() const {
  std::vector<std::pair<TenantId, wire::Hash>> all;
  for (const auto& [id, tenant] : tenants_)
    for (const auto& [root, blob] : tenant.blobs)
      if (blob.origin == BlobOrigin::kSession && blob.protections == 0)
        all.emplace_back(TenantId{id}, root);
  return all;
}

std::optional<BlobIndex::Gone> BlobIndex::Evict(TenantId tenant, int64_t now_ms) {
  Tenant& t = tenants_[tenant.value];
  const bool may_loose = !t.loose.empty() && t.loose.begin()->first <= now_ms - kLooseMs;
  Gone gone;
  if (may_loose && (t.idle.empty() || t.loose.begin()->first < t.idle.begin()->first)) {
    const wire::Hash hash = t.loose.begin()->second;
    gone.chunks.reserve(1);
    RemoveFromLoose(t, hash, t.chunks.at(hash));
    RemoveChunk(t, hash, &gone);
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

std::map<int64_t, BlobIndex::Usage> BlobIndex::UsageOfAll() const {
  std::map<int64_t, Usage> all;
  for (const auto& [id, tenant] : tenants_)
    all[id] = {.used_bytes = tenant.used_bytes, .protected_bytes = tenant.protected_bytes};
  return all;
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
