// Syncs the blob store's files to the disk on a thread of its own, and calls the waiters of
// WhenDurable.
#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/thread_slice.h"
#include "gateway/base/thrown.h"
#include "gateway/blobs/blob_store.h"

namespace outboard::gateway {

namespace {

using State = BlobIndex::ChunkState;

constexpr size_t kSyncBatchItems = 16;
constexpr std::chrono::seconds kLastUsesEvery{60};
constexpr std::chrono::seconds kTryAgainAfter{1};
// How often a file is synced once more that was replaced meanwhile.
constexpr int kSyncedAgainMax = 3;
constexpr absl::string_view kWaiter = "what waits until blobs are durable";

}  // namespace

void BlobStore::QueueSync(const Unsynced& item) {
  unsynced_.push_back(item);
  replaced_ |= syncing_ == item;
  ++queued_;
  wake_.notify_all();
}

// The disk throws only where it has failed and there is no memory to say so. What failed once is
// not tried again: Linux tells of a write that was lost once.
absl::Status BlobStore::SyncFile(const std::string& path) {
  return ErrorIfThrown("syncing a file", [&] { return disk_.Sync(path); });
}

// Where it throws, nothing has changed.
absl::Status BlobStore::SyncOne(const Unsynced& item, std::set<std::string>& folders) {
  const std::string of_session = RootPath(item.tenant, item.hash, BlobOrigin::kSession);
  const std::string of_client = RootPath(item.tenant, item.hash, BlobOrigin::kClient);
  const std::string fresh = ChunkPath(item.tenant, item.hash, State::kFresh);
  const std::string durable = ChunkPath(item.tenant, item.hash, State::kDurable);
  // Returns the item's file, or null: it was removed, or needs no sync any more. mutex_ held.
  const auto file = [&]() -> const std::string* {
    if (item.root) {
      const BlobIndex::Blob* const blob = index_.FindBlob(item.tenant, item.hash);
      if (blob == nullptr) return nullptr;
      return blob->origin == BlobOrigin::kClient ? &of_client : &of_session;
    }
    const BlobIndex::Chunk* const chunk = index_.FindChunk(item.tenant, item.hash);
    return chunk != nullptr && chunk->state == State::kFresh ? &fresh : nullptr;
  };
  std::string folder = TenantFolder(item.tenant) + (item.root ? "/roots" : "/chunks");
  const std::string* path;
  {
    std::lock_guard lock(mutex_);
    path = file();
    if (path == nullptr) return absl::OkStatus();
    folders.insert(std::move(folder));
    syncing_ = item;
    replaced_ = false;
  }
  // Nothing throws from here on: how the disk fares would be forgotten.
  for (int again = 0;; ++again) {
    const absl::Status status = SyncFile(*path);
    std::lock_guard lock(mutex_);
    path = file();
    // Queued once more meanwhile: it was removed, and was uploaded again, or it has another name,
    // as a client committed what a session had made. That the sync went well, or found no file, may
    // be said of the file before. An error may be said of either, and the disk tells it once: it
    // counts for the one that is there, which whoever needs it uploads again.
    const bool is_told = !replaced_ || !(status.ok() || absl::IsNotFound(status));
    if (path != nullptr && !is_told && again < kSyncedAgainMax) {
      replaced_ = false;
      continue;
    }
    syncing_.reset();
    // Whoever replaces it faster than the disk can write waits for what is queued.
    return path == nullptr || !is_told ? absl::OkStatus() : Settle(item, fresh, durable, status);
  }
}

// Does not throw. `path`: of its file.
void BlobStore::Lose(TenantId tenant, const wire::Hash& chunk, const std::string& path) {
  index_.LoseChunk(tenant, chunk, Now());
  RemoveFile(path);
}

void BlobStore::RemoveFile(const std::string& path) noexcept {
  ErrorIfThrown("removing a file", [&] { return disk_.Remove(path); }).IgnoreError();
}

absl::Status BlobStore::Settle(const Unsynced& item, const std::string& fresh,
                               const std::string& durable, absl::Status status) {
  if (item.root) {
    BlobIndex::Blob& blob = *index_.FindBlob(item.tenant, item.hash);
    blob.sync_failed |= !status.ok();
    blob.durable = !blob.sync_failed;
    return status;
  }
  if (status.ok()) {
    status = ErrorIfThrown("renaming a file", [&] { return disk_.Rename(fresh, durable); });  // BS1
  }
  if (!status.ok()) {
    // The disk's contents are unknown, and a second try would not reveal them: treated as damaged.
    Lose(item.tenant, item.hash, fresh);
    return status;
  }
  index_.FindChunk(item.tenant, item.hash)->state = State::kDurable;
  return absl::OkStatus();
}

bool BlobStore::SyncSome() {
  std::lock_guard one(sync_mutex_);
  std::vector<Unsynced> batch;
  {
    std::lock_guard lock(mutex_);
    const auto some = static_cast<int64_t>(std::min(unsynced_.size(), kSyncBatchItems));
    batch.assign(unsynced_.begin(), unsynced_.begin() + some);
  }
  if (batch.empty()) return false;
  std::set<std::string> folders;
  size_t count = 0;
  try {
    // An item that failed is removed or not durable; CheckDurable detects that.
    for (; count < batch.size(); ++count) SyncOne(batch[count], folders).IgnoreError();
  } catch (...) {
    if (count == 0) throw;  // else those before it are done, and not once more
  }
  // Nothing throws from here on, but for what is caught.
  bool failed = false;
  for (const std::string& folder : folders) failed |= !SyncFile(folder).ok();
  std::unique_lock lock(mutex_);
  folders_failed_ |= failed;
  unsynced_.erase(unsynced_.begin(), unsynced_.begin() + static_cast<int64_t>(count));
  synced_ += count;
  while (!waiters_.empty() && waiters_.begin()->first <= synced_) {
    const auto ready = waiters_.extract(waiters_.begin());
    for (Waiter& waiter : ready.mapped()) {
      absl::Status status = ErrorIfThrown(kWaiter, [&] { return CheckDurable(waiter); });
      lock.unlock();
      TellWaiter(waiter, std::move(status));
      lock.lock();
    }
  }
  return true;
}

void BlobStore::TellWaiter(Waiter& waiter, absl::Status status) {
  ErrorIfThrown(kWaiter, [&] {
    waiter.done(std::move(status));
    return absl::OkStatus();
  }).IgnoreError();
  waiter.done = nullptr;  // with what it protects, which takes the lock to give back
}

void BlobStore::TellWaiters(const absl::Status& status) {
  while (!waiters_.empty()) {
    const auto ready = waiters_.extract(waiters_.begin());
    for (Waiter& waiter : ready.mapped()) TellWaiter(waiter, status);
  }
}

absl::Status BlobStore::CheckDurable(const Waiter& waiter) {
  if (folders_failed_) {
    return absl::UnavailableError(
        "blob store: the disk failed to write; nothing is sure before the gateway starts again");
  }
  for (const wire::Hash& root : waiter.roots) {
    const BlobIndex::Blob* blob = index_.FindBlob(waiter.tenant, root);
    if (blob == nullptr || blob->absent > 0)
      return absl::NotFoundError(absl::StrCat("no blob ", wire::ToHex(root), " is here"));
    if (!blob->durable)
      return absl::UnavailableError("blob store: a manifest could not be written to disk");
  }
  return absl::OkStatus();
}

void BlobStore::WhenDurable(TenantId tenant, std::span<const wire::Hash> roots,
                            std::function<void(absl::Status)> done) {
  Waiter waiter{tenant, {roots.begin(), roots.end()}, std::move(done)};
  absl::Status status;
  {
    std::lock_guard lock(mutex_);
    if (synced_ < queued_) {
      waiters_[queued_].push_back(std::move(waiter));
      return;
    }
    status = CheckDurable(waiter);
  }
  waiter.done(std::move(status));
}

void BlobStore::SyncThread() {
  YieldToOthers(0);
  auto next = std::chrono::steady_clock::now() + kLastUsesEvery;
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    wake_.wait_until(lock, next, [this] { return stopping_ || !unsynced_.empty(); });
    lock.unlock();
    const absl::Status status = ErrorIfThrown("syncing blobs", [this] {
      SyncSome();
      return absl::OkStatus();
    });
    if (std::chrono::steady_clock::now() >= next) {
      ErrorIfThrown("writing when blobs were used", [this] {
        WriteLastUses();
        return absl::OkStatus();
      }).IgnoreError();
      next = std::chrono::steady_clock::now() + kLastUsesEvery;
    }
    lock.lock();
    if (!status.ok()) wake_.wait_for(lock, kTryAgainAfter, [this] { return stopping_; });
  }
}

// Calls wait for the lock, so the files are touched without it. One that was removed or renamed
// meanwhile is not there to be touched.
void BlobStore::WriteLastUses() {
  std::vector<std::pair<std::string, int64_t>> uses;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [tenant, root] : std::exchange(used_since_, {})) {
      const BlobIndex::Blob* blob = index_.FindBlob(TenantId{tenant}, root);
      if (blob != nullptr)
        uses.emplace_back(RootPath(TenantId{tenant}, root, blob->origin), blob->used_ms);
    }
  }
  for (const auto& [path, used_ms] : uses) disk_.Touch(path, used_ms);
}

}  // namespace outboard::gateway
