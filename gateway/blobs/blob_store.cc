// The life of a chunk:
//
//   Begin ─► tmp/ ── Writer::Finish ─► fresh/ ── SyncSome ─► chunks/ ── RemoveFiles ─► (gone)
//                                        └─ Scan, after a crash: verified ─┘
//
// Invariants:
//   BS1 A file under chunks/ was synced before it got that name.
//   BS2 A blob's list is renamed to roots/ while all its chunks are in the index, under the lock
//       for removing them: a list never names a chunk that was removed on purpose.
//   BS3 A file goes while the index has nothing under its name and state: the lock may have been
//       let go of since that left, and it may have come again.
//   BS4 synced_ grows only when the files of the items before it, and the folders of their names,
//       are synced; a caller that waits until synced_ reaches queued_ waits for all items queued
//       before.
#include "gateway/blobs/blob_store.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "gateway/base/thrown.h"
#include "gateway/blobs/limits.h"
#include "wire/limits.h"

namespace outboard::gateway {

namespace {

using State = BlobIndex::ChunkState;

// The disk also holds the accounts file: 1/64 of it, at most 256 MiB, is reserved for that.
constexpr uint64_t kReservePart = 64;
constexpr uint64_t kReserveBytesMax = uint64_t{256} << 20;

absl::Status NoChunk(const wire::Hash& chunk) {
  return absl::NotFoundError(absl::StrCat("chunk ", wire::ToHex(chunk), " is not here"));
}

absl::Status NotUploaded(size_t index, const wire::Hash& chunk) {
  return absl::NotFoundError(
      absl::StrCat("chunk ", index, " (", wire::ToHex(chunk), ") was not uploaded"));
}

// "<folder>/<tenant><part><hex>".
void PutPath(std::string_view folder, TenantId tenant, std::string_view part,
             const wire::Hash& hash, std::string& path) {
  constexpr char kHex[] = "0123456789abcdef";
  char number[20];  // digits of the largest, and a sign
  const auto end = std::to_chars(number, number + sizeof number, tenant.value).ptr;
  path.assign(folder).append("/").append(number, end).append(part);
  for (const uint8_t byte : hash) {
    path += kHex[byte >> 4];
    path += kHex[byte & 15];
  }
}

absl::Status CheckSizes(size_t chunks, uint64_t size_bytes) {
  const uint64_t count =
      size_bytes / wire::kBlobChunkBytes + (size_bytes % wire::kBlobChunkBytes != 0);
  if (chunks == count && count <= wire::kBlobChunksMax) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(size_bytes, " bytes in ", chunks,
                                                 " chunks; expected ", count, ", limit ",
                                                 wire::kBlobChunksMax));
}

}  // namespace

BlobStore::BlobStore(std::string folder, BlobStoreOptions options)
    : folder_(std::move(folder)),
      options_(std::move(options)),
      disk_(options_.disk != nullptr ? *options_.disk : system_disk_),
      index_(options_.charges) {}

absl::StatusOr<std::unique_ptr<BlobStore>> BlobStore::Open(const std::string& folder,
                                                           BlobStoreOptions options) {
  std::unique_ptr<BlobStore> store(new BlobStore(folder, std::move(options)));
  if (absl::Status status = store->Scan(); !status.ok()) return status;
  if (store->options_.sync_thread)
    store->thread_ = std::thread([raw = store.get()] { raw->SyncThread(); });
  return store;
}

BlobStore::~BlobStore() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
  // Items without a waiter are verified at the next start instead.
  const absl::Status status = ErrorIfThrown("syncing blobs", [this] {
    while (!waiters_.empty() && SyncSome()) continue;
    WriteLastUses();
    return absl::OkStatus();
  });
  TellWaiters(status);  // of those that are left
}

int64_t BlobStore::Now() const {
  if (options_.unix_ms) return options_.unix_ms();
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::string BlobStore::TenantFolder(TenantId tenant) const {
  return absl::StrCat(folder_, "/", tenant.value);
}

std::string BlobStore::ChunkPath(TenantId tenant, const wire::Hash& chunk, State state) const {
  std::string path;
  PutChunkPath(tenant, chunk, state, path);
  return path;
}

std::string BlobStore::RootPath(TenantId tenant, const wire::Hash& root, BlobOrigin origin) const {
  std::string path;
  PutRootPath(tenant, root, origin, path);
  return path;
}

void BlobStore::PutChunkPath(TenantId tenant, const wire::Hash& chunk, State state,
                             std::string& path) const {
  PutPath(folder_, tenant, state == State::kFresh ? "/fresh/" : "/chunks/", chunk, path);
}

void BlobStore::PutRootPath(TenantId tenant, const wire::Hash& root, BlobOrigin origin,
                            std::string& path) const {
  PutPath(folder_, tenant, "/roots/", root, path);
  if (origin == BlobOrigin::kSession) path += ".session";
}

std::string BlobStore::TemporaryPath() const {
  static std::atomic<uint64_t> next{0};
  return absl::StrCat(folder_, "/tmp/", getpid(), "-", next++);
}

absl::Status BlobStore::MakeTenant(TenantId tenant) {
  {
    std::lock_guard lock(mutex_);
    if (tenants_.contains(tenant.value)) return absl::OkStatus();
  }
  const std::string home = TenantFolder(tenant);
  for (const char* part : {"", "/fresh", "/chunks", "/roots"})
    if (auto made = disk_.MakeFolder(home + part); !made.ok()) return made.status();
  for (const std::string& folder : {home, folder_}) {
    if (absl::Status status = disk_.Sync(folder); !status.ok()) return status;
  }
  std::lock_guard lock(mutex_);
  tenants_.insert(tenant.value);
  return absl::OkStatus();
}

// ---- chunks -------------------------------------------------------------------------------------

bool BlobStore::Has(TenantId tenant, const wire::Hash& chunk) const {
  std::lock_guard lock(mutex_);
  return index_.FindChunk(tenant, chunk) != nullptr;
}

std::vector<wire::Hash> BlobStore::Missing(TenantId tenant,
                                           std::span<const wire::Hash> chunks) const {
  std::vector<wire::Hash> missing;
  std::lock_guard lock(mutex_);
  for (const wire::Hash& chunk : chunks) {
    if (index_.FindChunk(tenant, chunk) == nullptr) missing.push_back(chunk);
  }
  return missing;
}

absl::StatusOr<std::unique_ptr<BlobStore::Writer>> BlobStore::Begin(TenantId tenant,
                                                                    const wire::Hash& chunk) {
  if (absl::Status status = MakeTenant(tenant); !status.ok()) return status;
  if (absl::Status status = MakeRoomOnDisk(); !status.ok()) return status;
  // Before its bytes come: an object counts as a few KiB, however small it is.
  const uint64_t least = options_.charges.object_bytes_min;
  // Made first, so that whatever fails behind it is taken back by its end.
  std::unique_ptr<Writer> writer(new Writer(this, tenant, TemporaryPath(), chunk));
  if (absl::Status status = Reserve(tenant, least); !status.ok()) return status;
  writer->reserved_ = least;
  OB_ASSIGN_OR_RETURN(writer->fd_, disk_.Create(writer->temporary_));
  return writer;
}

BlobStore::Writer::Writer(BlobStore* store, TenantId tenant, std::string temporary,
                          const wire::Hash& hash)
    : store_(store), tenant_(tenant), temporary_(std::move(temporary)), hash_(hash) {}

BlobStore::Writer::~Writer() {
  if (fd_ >= 0)
    ErrorIfThrown("closing a file", [&] { return store_->disk_.Close(fd_); }).IgnoreError();
  if (temporary_.empty()) return;
  store_->RemoveFile(temporary_);
  if (reserved_ > 0) store_->Unreserve(tenant_, reserved_);
}

absl::Status BlobStore::Writer::Append(std::string_view bytes) {
  if (bytes_ + bytes.size() > wire::kBlobChunkBytes) {
    return absl::OutOfRangeError(
        absl::StrCat("a chunk of more than ", wire::kBlobChunkBytes, " bytes"));
  }
  const uint64_t offset = bytes_;
  if (const uint64_t all = bytes_ + bytes.size(); all > reserved_) {
    if (absl::Status status = store_->Reserve(tenant_, all - reserved_); !status.ok())
      return status;
    reserved_ = all;
  }
  bytes_ += bytes.size();
  hasher_.Update(bytes);
  for (;;) {
    absl::Status status = store_->disk_.Write(fd_, offset, bytes);
    if (!absl::IsResourceExhausted(status) || !store_->EvictForDisk()) return status;
  }
}

absl::Status BlobStore::Writer::Finish() {
  if (bytes_ == 0 || hasher_.Finish() != hash_) {
    return absl::InvalidArgumentError(
        absl::StrCat("the bytes sent as chunk ", wire::ToHex(hash_), " have another hash"));
  }
  if (absl::Status status = store_->disk_.Close(std::exchange(fd_, -1)); !status.ok())
    return status;
  std::lock_guard lock(store_->mutex_);
  // Uploaded twice concurrently: the existing file stays, since it may be on the disk already.
  if (store_->index_.FindChunk(tenant_, hash_) != nullptr) {
    store_->disk_.Remove(temporary_).IgnoreError();
  } else {
    const std::string path = store_->ChunkPath(tenant_, hash_, State::kFresh);
    // First: where memory ends behind it, a chunk is synced that is not there. The reverse would be
    // one that counts as durable and is not.
    store_->QueueSync({tenant_, hash_, false});
    if (absl::Status status = store_->disk_.Rename(temporary_, path); !status.ok()) return status;
    absl::Cleanup take_back = [&] { store_->RemoveFile(path); };
    store_->index_.AddChunk(tenant_, hash_, static_cast<uint32_t>(bytes_), State::kFresh,
                            store_->Now());
    std::move(take_back).Cancel();
  }
  store_->reserved_bytes_[tenant_.value] -= reserved_;
  temporary_.clear();
  return absl::OkStatus();
}

absl::StatusOr<std::string> BlobStore::ReadChunk(TenantId tenant, const wire::Hash& chunk) {
  State state;
  uint64_t size = 0;
  bool verified = false;
  absl::StatusOr<int> fd = -1;
  {
    // Opened under the lock, so that the file is where the index has it.
    std::lock_guard lock(mutex_);
    const BlobIndex::Chunk* found = index_.FindChunk(tenant, chunk);
    if (found == nullptr) return NoChunk(chunk);
    state = found->state;
    size = found->size_bytes;
    verified = found->verified;
    fd = disk_.Open(ChunkPath(tenant, chunk, state));
  }
  // Out of descriptors, or a failed read: transient, and no evidence about the bytes.
  if (!fd.ok() && !absl::IsNotFound(fd.status())) return fd.status();
  bool good = false;
  std::string bytes(size, '\0');
  if (fd.ok()) {
    const auto got = disk_.Read(*fd, bytes);
    close(*fd);
    if (!got.ok()) return got.status();
    good = *got == size && (verified || wire::HashChunk(bytes) == chunk);
  }
  std::lock_guard lock(mutex_);
  BlobIndex::Chunk* found = index_.FindChunk(tenant, chunk);
  if (good) {
    if (found != nullptr) found->verified = true;
    return bytes;
  }
  if (found != nullptr) Lose(tenant, chunk, ChunkPath(tenant, chunk, found->state));
  return absl::DataLossError(
      absl::StrCat("chunk ", wire::ToHex(chunk), " was damaged on disk; put it again"));
}

// ---- blobs --------------------------------------------------------------------------------------

absl::Status BlobStore::CommitAgain(TenantId tenant, const wire::Hash& root, BlobOrigin origin) {
  BlobIndex::Blob& known = *index_.FindBlob(tenant, root);
  if (known.origin == BlobOrigin::kSession && origin == BlobOrigin::kClient) {
    QueueSync({tenant, root, true});
    absl::Status status = disk_.Rename(RootPath(tenant, root, BlobOrigin::kSession),
                                       RootPath(tenant, root, BlobOrigin::kClient));
    if (!status.ok()) return status;
    known.origin = BlobOrigin::kClient;
  }
  index_.Use(tenant, root, Now());
  used_since_.insert({tenant.value, root});
  return absl::OkStatus();
}

absl::Status BlobStore::Commit(TenantId tenant, const wire::Hash& root,
                               std::span<const wire::Hash> chunks, uint64_t size_bytes,
                               BlobOrigin origin) {
  if (absl::Status status = CheckSizes(chunks.size(), size_bytes); !status.ok()) return status;
  if (wire::MerkleRoot(chunks, size_bytes) != root)
    return absl::InvalidArgumentError("the root does not match these chunks");
  std::optional<size_t> odd;  // a chunk of the wrong size
  const auto check = [&]() -> absl::Status {
    for (size_t i = 0; i < chunks.size(); ++i) {
      const BlobIndex::Chunk* chunk = index_.FindChunk(tenant, chunks[i]);
      if (chunk == nullptr) return NotUploaded(i, chunks[i]);
      const uint64_t expected =
          std::min<uint64_t>(wire::kBlobChunkBytes, size_bytes - i * wire::kBlobChunkBytes);
      if (chunk->size_bytes == expected) continue;
      odd = i;
      return absl::InvalidArgumentError(
          absl::StrCat("chunk ", i, " has ", chunk->size_bytes, " bytes; expected ", expected));
    }
    return absl::OkStatus();
  };
  {
    std::lock_guard lock(mutex_);
    absl::Status status = check();
    const BlobIndex::Blob* const known = index_.FindBlob(tenant, root);
    if (status.ok() && known != nullptr && !known->sync_failed)
      return CommitAgain(tenant, root, origin);
    if (!status.ok() && !odd.has_value()) return status;
  }
  if (odd.has_value()) {
    // Truncated on the disk, or never that long? The first is repaired by uploading it again.
    const auto read = ReadChunk(tenant, chunks[*odd]);
    if (absl::IsDataLoss(read.status()) || absl::IsNotFound(read.status()))
      return NotUploaded(*odd, chunks[*odd]);
    if (!read.ok()) return read.status();
    std::lock_guard lock(mutex_);
    if (absl::Status status = check(); !status.ok()) return status;
  }
  if (absl::Status status = MakeTenant(tenant); !status.ok()) return status;
  const uint64_t charged = options_.charges.OfList(chunks.size());
  if (absl::Status status = Reserve(tenant, charged, chunks.size()); !status.ok()) return status;
  const absl::Cleanup unreserve = [&] { Unreserve(tenant, charged); };
  std::string text = absl::StrCat(size_bytes, " ", chunks.size(), "\n");
  for (const wire::Hash& chunk : chunks) text += wire::AsBytes(chunk);
  const std::string temporary = TemporaryPath();
  auto fd = disk_.Create(temporary);
  if (!fd.ok()) return fd.status();
  absl::Cleanup remove = [&] { RemoveFile(temporary); };
  absl::Status status =
      ErrorIfThrown("writing a blob's list", [&] { return disk_.Write(*fd, 0, text); });
  if (absl::Status closed = disk_.Close(*fd); status.ok()) status = closed;
  if (status.ok()) {
    std::lock_guard lock(mutex_);
    status = check();  // BS2
    BlobIndex::Blob* const known = index_.FindBlob(tenant, root);
    if (status.ok() && known != nullptr && known->sync_failed) {
      // Nobody knows what is in that file: it gets another one.
      QueueSync({tenant, root, true});
      status = disk_.Rename(temporary, RootPath(tenant, root, known->origin));
      if (!status.ok()) return status;
      std::move(remove).Cancel();
      known->durable = false;
      known->sync_failed = false;
      status = CommitAgain(tenant, root, origin);
    } else if (status.ok() && known == nullptr) {
      BlobIndex::Blob blob{.size_bytes = size_bytes,
                           .chunks = {chunks.begin(), chunks.end()},
                           .origin = origin,
                           .used_ms = Now()};
      const std::string path = RootPath(tenant, root, origin);
      QueueSync({tenant, root, true});
      status = disk_.Rename(temporary, path);
      if (status.ok()) {
        std::move(remove).Cancel();
        absl::Cleanup take_back = [&] { RemoveFile(path); };
        index_.AddBlob(tenant, root, std::move(blob));
        std::move(take_back).Cancel();
      }
    }
  }
  return status;
}

absl::StatusOr<wire::Hash> BlobStore::Write(TenantId tenant, std::string_view bytes,
                                            BlobOrigin origin) {
  const wire::BlobName name = wire::NameBlob(bytes);
  for (size_t i = 0; i < name.chunks.size(); ++i) {
    if (Has(tenant, name.chunks[i])) continue;
    auto writer = Begin(tenant, name.chunks[i]);
    if (!writer.ok()) return writer.status();
    absl::Status status =
        (*writer)->Append(bytes.substr(i * wire::kBlobChunkBytes, wire::kBlobChunkBytes));
    if (status.ok()) status = (*writer)->Finish();
    if (!status.ok()) return status;
  }
  absl::Status status = Commit(tenant, name.root, name.chunks, bytes.size(), origin);
  if (!status.ok()) return status;
  return name.root;
}

absl::StatusOr<BlobStore::Blob> BlobStore::Find(TenantId tenant, const wire::Hash& root) {
  std::lock_guard lock(mutex_);
  auto blob = FindWhole(tenant, root);
  if (!blob.ok()) return blob.status();
  return Blob{(*blob)->size_bytes, (*blob)->chunks};
}

absl::StatusOr<uint64_t> BlobStore::FindSize(TenantId tenant, const wire::Hash& root) {
  std::lock_guard lock(mutex_);
  auto blob = FindWhole(tenant, root);
  if (!blob.ok()) return blob.status();
  return (*blob)->size_bytes;
}

absl::StatusOr<BlobIndex::Blob*> BlobStore::FindWhole(TenantId tenant, const wire::Hash& root) {
  BlobIndex::Blob* blob = index_.FindBlob(tenant, root);
  if (blob == nullptr)
    return absl::NotFoundError(absl::StrCat("no blob ", wire::ToHex(root), " was committed"));
  if (blob->absent > 0) {
    return absl::DataLossError(
        absl::StrCat("a chunk of blob ", wire::ToHex(root), " was damaged on disk; put it again"));
  }
  index_.Use(tenant, root, Now());
  used_since_.insert({tenant.value, root});
  return blob;
}

absl::StatusOr<std::string> BlobStore::Read(TenantId tenant, const wire::Hash& root,
                                            uint64_t bytes_max) {
  auto blob = Find(tenant, root);
  if (!blob.ok()) return blob.status();
  if (blob->size_bytes > bytes_max) {
    return absl::ResourceExhaustedError(
        absl::StrCat("a blob of ", blob->size_bytes, " bytes; limit ", bytes_max));
  }
  std::string all;
  for (const wire::Hash& chunk : blob->chunks) {
    auto bytes = ReadChunk(tenant, chunk);
    if (!bytes.ok()) return bytes.status();
    all += *bytes;
  }
  return all;
}

absl::Status BlobStore::Protect(TenantId tenant, std::span<const wire::Hash> roots) {
  std::lock_guard lock(mutex_);
  return index_.Protect(tenant, roots);
}

// Files go while the lock is held, or one that is uploaded meanwhile would go, too. A session may
// leave thousands, and a blob has as many as chunks; every account's calls wait for the lock: it is
// let go of after a few of them, and long enough for who waits to have it.
class BlobStore::Turns {
 public:
  explicit Turns(std::mutex& mutex, size_t path_bytes_max = 0) {
    path.reserve(path_bytes_max);
    lock_ = std::unique_lock(mutex);
  }
  // Before a further file, or step of about its time.
  void Next() {
    if (++done_ % kFilesRemovedAtOnce != 0) return;
    lock_.unlock();
    std::this_thread::sleep_for(std::chrono::microseconds(50));
    lock_.lock();
  }

  std::string path;  // of the file that goes: there is no memory to be had once the index lacks it

 private:
  std::unique_lock<std::mutex> lock_;
  size_t done_ = 0;
};

uint64_t BlobStore::Remove(TenantId tenant, const wire::Hash& root, BlobIndex::Origins origins,
                           Turns& turns) {
  const BlobIndex::Gone gone = index_.RemoveIdle(tenant, root, origins);
  RemoveFiles(tenant, gone, turns);
  return gone.bytes;
}

void BlobStore::Unprotect(TenantId tenant, std::span<const wire::Hash> roots) {
  if (roots.empty()) return;
  {
    Turns turns(mutex_);
    for (const wire::Hash& root : roots) {
      index_.Unprotect(tenant, std::span(&root, 1), Now());
      turns.Next();
    }
  }
  ErrorIfThrown("removing what a session stored", [&] {
    Turns turns(mutex_, PathBytesMax());
    for (const wire::Hash& root : roots)
      Remove(tenant, root, BlobIndex::Origins::kSession, turns);
    return absl::OkStatus();
  }).IgnoreError();
}

uint64_t BlobStore::RemoveIdle(TenantId tenant, std::span<const wire::Hash> roots) {
  uint64_t bytes = 0;
  Turns turns(mutex_, PathBytesMax());
  for (const wire::Hash& root : roots)
    bytes += Remove(tenant, root, BlobIndex::Origins::kAny, turns);
  return bytes;
}

void BlobStore::RemoveIdleOfSessions() {
  Turns turns(mutex_, PathBytesMax());
  for (const auto& [tenant, root] : index_.IdleOfSessions())
    Remove(tenant, root, BlobIndex::Origins::kSession, turns);
}

// ---- space --------------------------------------------------------------------------------------

absl::Status BlobStore::Reserve(TenantId tenant, uint64_t bytes, size_t list_entries) {
  Turns turns(mutex_, PathBytesMax());
  uint64_t& reserved = reserved_bytes_[tenant.value];
  for (;;) {
    absl::Status status = CheckQuota(tenant, reserved + bytes, list_entries);
    if (status.ok()) break;
    const auto gone = index_.Evict(tenant, Now());
    if (!gone.has_value()) return status;
    RemoveFiles(tenant, *gone, turns);
  }
  reserved += bytes;
  return absl::OkStatus();
}

void BlobStore::Unreserve(TenantId tenant, uint64_t bytes) {
  std::lock_guard lock(mutex_);
  reserved_bytes_[tenant.value] -= bytes;
}

bool BlobStore::EvictForDisk() {
  Turns turns(mutex_, PathBytesMax());
  const auto victim = index_.EvictAnywhere(Now());
  if (!victim.has_value()) return false;
  RemoveFiles(victim->first, victim->second, turns);
  return true;
}

absl::Status BlobStore::MakeRoomOnDisk() {
  for (;;) {
    auto room = disk_.RoomAt(folder_);
    if (!room.ok()) return room.status();
    if (room->free_bytes >= std::min(room->total_bytes / kReservePart, kReserveBytesMax))
      return absl::OkStatus();
    if (!EvictForDisk()) {
      return OfDisk(absl::ResourceExhaustedError(
          "blob store: room: No space left on device, but for what the accounts need"));
    }
  }
}

// Lists first, and under the hold that took them from the index: a crash in between leaves chunks
// that no list names, not the reverse. Does not throw.
void BlobStore::RemoveFiles(TenantId tenant, const BlobIndex::Gone& gone, Turns& turns) {
  for (const auto& [root, origin] : gone.blobs) {
    PutRootPath(tenant, root, origin, turns.path);
    RemoveFile(turns.path);
    used_since_.erase({tenant.value, root});
    turns.Next();
  }
  for (const auto& [chunk, state] : gone.chunks) {
    const BlobIndex::Chunk* const again = index_.FindChunk(tenant, chunk);
    if (again == nullptr || again->state != state) {  // BS3
      PutChunkPath(tenant, chunk, state, turns.path);
      RemoveFile(turns.path);
    }
    turns.Next();
  }
}

uint64_t BlobStore::SizeOf(TenantId tenant, const wire::Hash& root) const {
  std::lock_guard lock(mutex_);
  const BlobIndex::Blob* blob = index_.FindBlob(tenant, root);
  return blob != nullptr ? blob->size_bytes : 0;
}

BlobIndex::Usage BlobStore::UsageOf(TenantId tenant) const {
  std::lock_guard lock(mutex_);
  return index_.UsageOf(tenant);
}

BlobIndex::Usage BlobStore::RecountUsage(TenantId tenant) const {
  std::lock_guard lock(mutex_);
  return index_.RecountUsage(tenant);
}

std::map<int64_t, BlobIndex::Usage> BlobStore::UsageOfAll() const {
  std::lock_guard lock(mutex_);
  return index_.UsageOfAll();
}

}  // namespace outboard::gateway
