// Invariants:
//   BR1 held_ has, for each row of names_, the roots that Protect was called with for it, and
//       nothing else.
//   BR2 A row is written only while its blobs are protected and after they are durable.
//   BR3 Each root that a session's entry lists is protected once for each time that it is listed,
//       also where memory ends: what is protected is a Protected's until an entry lists it, and
//       there is room for what an entry gives up before it does.
//   BR4 pinned_ counts the roots in held_ of the pinned names, each once a name, also where memory
//       ends: what counting needs is there before the row changes. Where a change failed, the row
//       is read again; if that fails, too, it is counted when the gateway starts again. Neither
//       changes while a name is pinned.
// names_mutex_ is held while a row changes, so that rows and held_ change together; sessions_mutex_
// is never held during disk I/O. The store never calls back with its own lock held.
#include "gateway/blobs/blob_retention.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "gateway/blobs/limits.h"

namespace outboard::gateway {

namespace {

absl::Status Ended() { return absl::AbortedError("the session has ended"); }

}  // namespace

// Roots whose protection ends with this object, or with those that took their place in `mine`.
class BlobRetention::Protected {
 public:
  static absl::StatusOr<std::shared_ptr<Protected>> Of(BlobStore* store, TenantId tenant,
                                                       std::vector<wire::Hash> roots) {
    const auto made = std::make_shared<Protected>(store, tenant);
    OB_RETURN_IF_ERROR(store->Protect(tenant, roots));
    made->mine = std::move(roots);
    return made;
  }
  Protected(BlobStore* store, TenantId tenant) : store_(store), tenant_(tenant) {}
  ~Protected() { Free(); }
  Protected(const Protected&) = delete;
  Protected& operator=(const Protected&) = delete;
  // Waits for the disk: call it without a lock.
  void Free() { store_->Unprotect(tenant_, std::exchange(mine, {})); }

  std::vector<wire::Hash> mine;

 private:
  BlobStore* const store_;
  const TenantId tenant_;
};

absl::StatusOr<std::unique_ptr<BlobRetention>> BlobRetention::Open(BlobStore* store,
                                                                   const std::string& names_path,
                                                                   std::function<WallTime()> now) {
  OB_ASSIGN_OR_RETURN(std::unique_ptr<Names> names, Names::Open(names_path));
  std::unique_ptr<BlobRetention> blob_retention(
      new BlobRetention(store, std::move(names), std::move(now)));
  OB_RETURN_IF_ERROR(blob_retention->ProtectNames());
  return blob_retention;
}

absl::Status BlobRetention::ProtectNames() {
  OB_ASSIGN_OR_RETURN(const auto rows, names_->All());
  for (const auto& [tenant, row] : rows) {
    std::vector<wire::Hash> wanted = {row.manifest};
    const auto bytes = store_->Read(tenant, row.manifest, kCheckpointBytesMax);
    if (absl::IsUnavailable(bytes.status())) return bytes.status();  // transient: keeps protections
    if (bytes.ok()) {
      if (const auto list = ReadManifest(*bytes); list.ok())
        for (const NamedBlob& blob : BlobsOf(*list)) wanted.push_back(blob.root);
    }
    // A damaged disk may have lost some; Get and the download report it, and the rest stays.
    std::vector<wire::Hash>& held = held_[{tenant.value, row.name}];
    for (const wire::Hash& root : wanted)
      if (store_->Protect(tenant, std::span(&root, 1)).ok()) held.push_back(root);
    if (row.pinned) CountPinned(tenant, ToCount(tenant, held), true);
  }
  return absl::OkStatus();
}

// ---- names --------------------------------------------------------------------------------------

absl::StatusOr<BlobRetention::Stored> BlobRetention::Get(TenantId tenant, std::string_view name) {
  OB_ASSIGN_OR_RETURN(NameRow row, names_->Find(tenant, name));
  for (;;) {
    const auto bytes = store_->Read(tenant, row.manifest, kCheckpointBytesMax);
    if (bytes.ok()) {
      OB_ASSIGN_OR_RETURN(proto::Checkpoint checkpoint, ReadManifest(*bytes));
      return Stored{std::move(row), std::move(checkpoint)};
    }
    if (absl::IsUnavailable(bytes.status())) return bytes.status();
    // A concurrent Set has already taken the previous list.
    OB_ASSIGN_OR_RETURN(NameRow now, names_->Find(tenant, name));
    if (now.manifest == row.manifest) {
      return absl::DataLossError(
          absl::StrCat("the list of ", row.name, " was damaged on the gateway's disk"));
    }
    row = std::move(now);
  }
}

void BlobRetention::Set(TenantId tenant, const std::string& name,
                        const proto::Checkpoint& checkpoint, Done done) {
  std::vector<wire::Hash> roots;
  NameRow row{.name = name, .entries = static_cast<uint32_t>(checkpoint.entries_size())};
  const auto prepare = [&]() -> absl::Status {
    OB_RETURN_IF_ERROR(CheckName(name));
    OB_RETURN_IF_ERROR(CheckCheckpoint(checkpoint));
    for (const NamedBlob& blob : BlobsOf(checkpoint)) {
      OB_ASSIGN_OR_RETURN(const uint64_t size_bytes, store_->FindSize(tenant, blob.root));
      if (size_bytes != blob.size_bytes) {
        return absl::InvalidArgumentError(absl::StrCat(
            "blob ", wire::ToHex(blob.root), " has ", size_bytes, " bytes, not ", blob.size_bytes));
      }
      row.size_bytes += blob.size_bytes;
      roots.push_back(blob.root);
    }
    // No client will upload it again: removed with the name.
    OB_ASSIGN_OR_RETURN(row.manifest,
                        store_->Write(tenant, ManifestBytes(checkpoint), BlobOrigin::kSession));
    roots.push_back(row.manifest);
    return absl::OkStatus();
  };
  if (absl::Status status = prepare(); !status.ok()) return done(std::move(status));
  Name(tenant, row, std::move(roots), std::move(done));
}

void BlobRetention::Name(TenantId tenant, const NameRow& row, std::vector<wire::Hash> roots,
                         Done done) {
  const auto named = Protected::Of(store_, tenant, std::move(roots));
  if (!named.ok()) return done(named.status());
  const std::vector<wire::Hash> waited = (*named)->mine;
  store_->WhenDurable(
      tenant, waited,
      [this, tenant, row = NameRow(row), named = *named,
       done = std::move(done)](absl::Status status) mutable {
        if (status.ok()) {
          std::lock_guard lock(names_mutex_);
          const auto [held, is_new] = held_.try_emplace({tenant.value, row.name});
          row.written_at = now_();
          status = names_->Set(tenant, row);
          if (status.ok())  // BR1
            std::swap(held->second, named->mine);
          else if (is_new)
            held_.erase(held);
        }
        named->Free();  // the previous roots; on failure, the new ones
        done(std::move(status));
      });
}

absl::StatusOr<uint64_t> BlobRetention::Remove(TenantId tenant, std::string_view name) {
  const uint64_t before = store_->UsageOf(tenant).used_bytes;
  std::vector<wire::Hash> held;
  const std::pair key(tenant.value, std::string(name));
  {
    std::lock_guard lock(names_mutex_);
    OB_RETURN_IF_ERROR(names_->Remove(tenant, name));
    const auto found = held_.extract(key);
    if (!found.empty()) held = std::move(found.mapped());
  }
  store_->Unprotect(tenant, held);
  store_->RemoveIdle(tenant, held);
  const uint64_t after = store_->UsageOf(tenant).used_bytes;
  return before - std::min(before, after);
}

absl::StatusOr<BlobRetention::Usage> BlobRetention::UsageOf(TenantId tenant) {
  Usage usage{.quota_bytes = store_->quota_bytes()};
  OB_ASSIGN_OR_RETURN(usage.names, names_->Count(tenant));
  const BlobIndex::Usage stored = store_->UsageOf(tenant);
  usage.used_bytes = stored.used_bytes;
  usage.protected_bytes = stored.protected_bytes;
  std::lock_guard lock(pinned_mutex_);
  if (const auto found = pinned_.find(tenant.value); found != pinned_.end())
    usage.pinned_bytes = found->second.bytes;
  return usage;
}

absl::Status BlobRetention::Pin(TenantId tenant, std::string_view name, bool pinned) {
  std::lock_guard lock(names_mutex_);
  OB_ASSIGN_OR_RETURN(const NameRow row, names_->Find(tenant, name));
  if (row.pinned == pinned) return absl::OkStatus();
  // Before the row: it takes memory.
  PinnedRoots roots = ToCount(tenant, held_[{tenant.value, row.name}]);
  if (absl::Status status = names_->Pin(tenant, name, pinned); !status.ok()) {
    // The file may have it all the same, as where the disk failed behind the write.
    const absl::StatusOr<NameRow> now = names_->Find(tenant, name);
    if (!now.ok() || now->pinned != pinned) return status;
  }
  CountPinned(tenant, std::move(roots), pinned);
  return absl::OkStatus();
}

BlobRetention::PinnedRoots BlobRetention::ToCount(TenantId tenant,
                                                  std::span<const wire::Hash> roots) {
  PinnedRoots count;
  for (const wire::Hash& root : roots)
    count.try_emplace(root, PinnedRoot{.bytes = store_->SizeOf(tenant, root)});
  std::lock_guard lock(pinned_mutex_);
  pinned_.try_emplace(tenant.value);
  return count;
}

void BlobRetention::CountPinned(TenantId tenant, PinnedRoots roots, bool pinned) noexcept {
  std::lock_guard lock(pinned_mutex_);
  Pinned& all = pinned_.find(tenant.value)->second;
  while (!roots.empty()) {
    auto root = roots.extract(roots.begin());
    if (pinned) {
      const auto added = all.roots.insert(std::move(root));
      ++added.position->second.names;
      if (added.inserted) all.bytes += added.position->second.bytes;
      continue;
    }
    const auto counted = all.roots.find(root.key());
    // The file may say of a change that it failed, and have it: then it was not counted.
    if (counted == all.roots.end() || --counted->second.names > 0) continue;
    all.bytes -= counted->second.bytes;
    all.roots.erase(counted);
  }
}

// ---- sessions -----------------------------------------------------------------------------------

void BlobRetention::BeginSession(TenantId tenant, const SessionId& session) {
  std::lock_guard lock(sessions_mutex_);
  sessions_.try_emplace(session, Session{.tenant = tenant});
}

absl::StatusOr<uint64_t> BlobRetention::SizeOf(TenantId tenant, const wire::Hash& root) {
  return store_->FindSize(tenant, root);
}

absl::Status BlobRetention::UseBlob(TenantId tenant, const SessionId& session,
                                    const wire::Hash& root, uint64_t seq, uint64_t behind_seq) {
  std::map<uint64_t, wire::Hash> entry = {{seq, root}};  // BR3
  OB_ASSIGN_OR_RETURN(const auto used, Protected::Of(store_, tenant, {root}));
  std::lock_guard lock(sessions_mutex_);
  const auto uses = sessions_.find(session);
  if (uses == sessions_.end()) return Ended();
  std::vector<wire::Hash> free;
  ForgetPuts(uses->second, behind_seq, free);
  const auto put = uses->second.puts.insert(entry.extract(seq));
  if (!put.inserted) free.push_back(std::exchange(put.position->second, root));  // repeated
  std::swap(used->mine, free);
  return absl::OkStatus();
}

void BlobRetention::ForgetPuts(Session& uses, uint64_t seq, std::vector<wire::Hash>& free) {
  const auto behind = uses.puts.upper_bound(seq);
  // With room for one more, so that nothing throws behind it.
  free.reserve(free.size() + static_cast<size_t>(std::distance(uses.puts.begin(), behind)) + 1);
  for (auto put = uses.puts.begin(); put != behind; ++put) free.push_back(put->second);
  uses.puts.erase(uses.puts.begin(), behind);
}

absl::Status BlobRetention::UploadedBy(TenantId tenant, const SessionId& session,
                                       const wire::Hash& root) {
  OB_ASSIGN_OR_RETURN(const auto uploaded, Protected::Of(store_, tenant, {root}));
  std::lock_guard lock(sessions_mutex_);
  const auto uses = sessions_.find(session);
  if (uses == sessions_.end()) return Ended();
  uses->second.uploaded.insert(root);
  uploaded->mine.clear();
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<BlobRetention::Protected>> BlobRetention::SnapshotRoots(
    TenantId tenant, const wire::Hash& manifest) {
  OB_ASSIGN_OR_RETURN(const std::string bytes, store_->Read(tenant, manifest, kSnapshotBytesMax));
  OB_ASSIGN_OR_RETURN(std::vector<wire::Hash> roots, RootsOfSnapshot(bytes));
  roots.push_back(manifest);
  return Protected::Of(store_, tenant, std::move(roots));
}

void BlobRetention::KeepSnapshot(TenantId tenant, const SessionId& session,
                                 const wire::Hash& manifest, uint64_t seq, Write write, Done done) {
  const auto kept = SnapshotRoots(tenant, manifest);
  if (!kept.ok()) return done(kept.status());
  const std::vector<wire::Hash> waited = (*kept)->mine;
  Done written = [this, session, seq, kept = *kept, done](absl::Status status) {
    if (status.ok()) {
      std::lock_guard lock(sessions_mutex_);
      const auto uses = sessions_.find(session);
      if (uses == sessions_.end())
        status = Ended();
      else
        Replace(uses->second, seq, *kept);
    }
    kept->Free();
    done(std::move(status));
  };
  store_->WhenDurable(tenant, waited, [write = std::move(write), written](absl::Status status) {
    if (!status.ok()) return written(std::move(status));
    write(written);
  });
}

// The row names `kept`, which stays protected also if this throws.
void BlobRetention::Replace(Session& uses, uint64_t seq, Protected& kept) {
  std::vector<wire::Hash> snapshot = std::exchange(kept.mine, {}), free;
  free.reserve(uses.snapshot.size() + snapshot.size() + uses.puts.size() + 1);  // BR3
  free.insert(free.end(), uses.snapshot.begin(), uses.snapshot.end());
  Claim(uses, snapshot, free);
  ForgetPuts(uses, seq, free);
  uses.snapshot = std::move(snapshot);
  kept.mine = std::move(free);
}

// Within room that is there.
void BlobRetention::Claim(Session& uses, const std::vector<wire::Hash>& snapshot,
                          std::vector<wire::Hash>& free) {
  for (const wire::Hash& root : snapshot) {
    const auto found = uses.uploaded.find(root);
    if (found == uses.uploaded.end()) continue;
    free.push_back(root);
    uses.uploaded.erase(found);
  }
}

void BlobRetention::KeepPart(TenantId tenant, const SessionId& session, const wire::Hash& manifest,
                             uint64_t seq, Write write, Done done) {
  const auto kept = SnapshotRoots(tenant, manifest);
  if (!kept.ok()) return done(kept.status());
  const std::vector<wire::Hash> waited = (*kept)->mine;
  store_->WhenDurable(tenant, waited, [=, this, kept = *kept](absl::Status status) {
    if (status.ok()) {
      std::lock_guard lock(sessions_mutex_);
      const auto uses = sessions_.find(session);
      if (uses == sessions_.end())
        status = Ended();
      else
        AddPart(uses->second, {seq, manifest}, kept->mine);
    }
    kept->Free();
    status.ok() ? write(done) : done(std::move(status));
  });
}

// Exchanges the part's roots for those that need no protection any more.
void BlobRetention::AddPart(Session& uses, const std::pair<uint64_t, wire::Hash>& key,
                            std::vector<wire::Hash>& roots) {
  auto& parts = uses.parts;
  std::vector<wire::Hash> part = roots, free;
  free.reserve(2 * roots.size() + (parts.empty() ? 0 : parts.begin()->second.size()));  // BR3
  // One that is there was sent twice.
  if (!parts.try_emplace(key, std::move(part)).second) free = roots;
  Claim(uses, roots, free);
  while (parts.size() > kSnapshotPartsMax) {
    free.insert(free.end(), parts.begin()->second.begin(), parts.begin()->second.end());
    parts.erase(parts.begin());
  }
  std::swap(roots, free);
}

void BlobRetention::PartsKept(const SessionId& session, uint64_t seq,
                              const std::vector<wire::Hash>& manifests) {
  std::vector<wire::Hash> free, snapshot;
  TenantId tenant;
  {
    std::lock_guard lock(sessions_mutex_);
    const auto found = sessions_.find(session);
    if (found == sessions_.end()) return;
    Session& uses = found->second;
    tenant = uses.tenant;
    free.reserve(CountOf(uses));  // BR3
    snapshot.reserve(CountOf(uses));
    free.insert(free.end(), uses.forgotten.begin(), uses.forgotten.end());
    uses.forgotten.clear();
    free.insert(free.end(), uses.snapshot.begin(), uses.snapshot.end());
    while (!uses.parts.empty() && uses.parts.begin()->first.first <= seq) {
      const auto part = uses.parts.extract(uses.parts.begin());
      const auto& [item, manifest] = part.key();
      const bool is_in = item == seq && std::ranges::count(manifests, manifest) > 0;
      std::vector<wire::Hash>& to = is_in ? snapshot : free;
      to.insert(to.end(), part.mapped().begin(), part.mapped().end());
    }
    std::swap(uses.snapshot, snapshot);
    ForgetPuts(uses, seq, free);
  }
  store_->Unprotect(tenant, free);
}

void BlobRetention::ForgetParts(const SessionId& session, uint64_t seq) {
  std::lock_guard lock(sessions_mutex_);
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) return;
  Session& uses = found->second;
  const auto behind = std::ranges::find_if(
      uses.parts, [&](const auto& entry) { return entry.first.first > seq; });
  uses.forgotten.reserve(CountOf(uses));  // BR3
  for (auto part = behind; part != uses.parts.end(); ++part)
    uses.forgotten.insert(uses.forgotten.end(), part->second.begin(), part->second.end());
  uses.parts.erase(behind, uses.parts.end());
}

// The roots that it lists, and one.
size_t BlobRetention::CountOf(const Session& uses) {
  size_t count = uses.snapshot.size() + uses.puts.size() + uses.forgotten.size() +
                 uses.uploaded.size() + 1;
  for (const auto& [key, part] : uses.parts) count += part.size();
  return count;
}

void BlobRetention::KeepCheckpoint(TenantId tenant, const SessionId& session,
                                   const std::string& name, const wire::Hash& manifest, Done done) {
  NameRow row{.name = name, .manifest = manifest};
  std::vector<wire::Hash> roots;
  const auto prepare = [&]() -> absl::Status {
    OB_RETURN_IF_ERROR(CheckName(name));
    OB_ASSIGN_OR_RETURN(const std::string bytes,
                        store_->Read(tenant, manifest, kCheckpointBytesMax));
    OB_ASSIGN_OR_RETURN(const proto::Checkpoint checkpoint, ReadManifest(bytes));
    OB_RETURN_IF_ERROR(CheckCheckpoint(checkpoint));
    row.entries = static_cast<uint32_t>(checkpoint.entries_size());
    for (const NamedBlob& blob : BlobsOf(checkpoint)) {
      OB_ASSIGN_OR_RETURN(const BlobStore::Blob found, store_->Find(tenant, blob.root));
      if (found.size_bytes != blob.size_bytes)
        return absl::InvalidArgumentError("a blob's size differs from the checkpoint's entry");
      row.size_bytes += blob.size_bytes;
      roots.push_back(blob.root);
    }
    roots.push_back(manifest);
    return absl::OkStatus();
  };
  if (absl::Status status = prepare(); !status.ok()) return done(std::move(status));
  Name(tenant, row, roots,
       [this, tenant, session, roots, done = std::move(done)](absl::Status status) {
         if (status.ok()) Forget(tenant, session, roots);
         done(std::move(status));
       });
}

void BlobRetention::Forget(TenantId tenant, const SessionId& session,
                           const std::vector<wire::Hash>& uploaded) {
  std::vector<wire::Hash> free;
  free.reserve(uploaded.size());  // BR3
  {
    std::lock_guard lock(sessions_mutex_);
    const auto uses = sessions_.find(session);
    if (uses == sessions_.end()) return;
    Claim(uses->second, uploaded, free);
  }
  store_->Unprotect(tenant, free);
}

absl::Status BlobRetention::RestoreSnapshot(TenantId tenant, const SessionId& session,
                                            std::span<const wire::Hash> manifests) {
  Protected all(store_, tenant);
  for (const wire::Hash& manifest : manifests) {
    OB_ASSIGN_OR_RETURN(const auto part, SnapshotRoots(tenant, manifest));
    all.mine.insert(all.mine.end(), part->mine.begin(), part->mine.end());
    part->mine.clear();
  }
  std::lock_guard lock(sessions_mutex_);
  Session& uses = sessions_[session];
  uses.tenant = tenant;
  std::swap(uses.snapshot, all.mine);
  return absl::OkStatus();
}

void BlobRetention::EndSession(const SessionId& session) {
  std::unique_lock lock(sessions_mutex_);
  const auto ended = sessions_.extract(session);
  lock.unlock();
  if (ended.empty()) return;
  const Session& uses = ended.mapped();
  const auto free = [&](std::span<const wire::Hash> roots) {
    store_->Unprotect(uses.tenant, roots);
  };
  free(uses.snapshot);
  for (const auto& [seq, root] : uses.puts) free({&root, 1});
  for (const auto& [key, part] : uses.parts) free(part);
  free(uses.forgotten);
  for (const wire::Hash& root : uses.uploaded) free({&root, 1});
}

}  // namespace outboard::gateway
