#include "gateway/blobs/blob_store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "proto/limits.h"

namespace outboard::gateway {

namespace {

namespace fs = std::filesystem;

absl::Status DiskError(const char* what, int error) {
  std::string message = absl::StrCat("blob store: ", what, ": ", strerror(error));
  if (error == ENOSPC || error == EDQUOT || error == EFBIG)
    return absl::ResourceExhaustedError(message);
  return absl::UnavailableError(message);
}

absl::Status WriteAll(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    ssize_t wrote = write(fd, bytes.data(), bytes.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return DiskError("write", errno);
    bytes.remove_prefix(static_cast<size_t>(wrote));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<BlobStore>> BlobStore::Open(const std::string& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return DiskError("create folder", error.value());
  fs::permissions(folder, fs::perms::owner_all, error);
  fs::remove_all(folder + "/tmp", error);
  fs::create_directories(folder + "/tmp", error);
  if (error) return DiskError("create folder", error.value());
  return std::unique_ptr<BlobStore>(new BlobStore(folder));
}

std::string BlobStore::ChunkPath(TenantId tenant, const wire::Hash& chunk) const {
  std::string hex = wire::ToHex(chunk);
  return absl::StrCat(folder_, "/", tenant.value, "/chunks/", hex.substr(0, 2), "/", hex);
}

std::string BlobStore::RootPath(TenantId tenant, const wire::Hash& root) const {
  return absl::StrCat(folder_, "/", tenant.value, "/roots/", wire::ToHex(root));
}

std::string BlobStore::TemporaryPath() const {
  static std::atomic<uint64_t> next{0};
  return absl::StrCat(folder_, "/tmp/", getpid(), "-", next++);
}

bool BlobStore::Has(TenantId tenant, const wire::Hash& chunk) const {
  return access(ChunkPath(tenant, chunk).c_str(), F_OK) == 0;
}

absl::StatusOr<std::unique_ptr<BlobStore::Writer>> BlobStore::Begin(TenantId tenant,
                                                                    const wire::Hash& chunk) {
  std::string target = ChunkPath(tenant, chunk);
  std::error_code error;
  fs::create_directories(fs::path(target).parent_path(), error);
  if (error) return DiskError("create folder", error.value());
  std::string temporary = TemporaryPath();
  int fd = open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return DiskError("open", errno);
  return std::unique_ptr<Writer>(new Writer(std::move(temporary), std::move(target), chunk, fd));
}

BlobStore::Writer::Writer(std::string temporary, std::string target, const wire::Hash& hash, int fd)
    : temporary_(std::move(temporary)), target_(std::move(target)), hash_(hash), fd_(fd) {}

BlobStore::Writer::~Writer() {
  if (fd_ >= 0) close(fd_);
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

absl::Status BlobStore::Writer::Append(std::string_view bytes) {
  if (bytes_ + bytes.size() > wire::kBlobChunkBytes) {
    return absl::OutOfRangeError(
        absl::StrCat("a chunk of more than ", wire::kBlobChunkBytes, " bytes"));
  }
  bytes_ += bytes.size();
  hasher_.Update(bytes);
  return WriteAll(fd_, bytes);
}

absl::Status BlobStore::Writer::Finish() {
  if (hasher_.Finish() != hash_) {
    return absl::InvalidArgumentError(
        absl::StrCat("the bytes sent as chunk ", wire::ToHex(hash_), " have another hash"));
  }
  if (close(std::exchange(fd_, -1)) != 0) return DiskError("close", errno);
  if (rename(temporary_.c_str(), target_.c_str()) != 0) return DiskError("rename", errno);
  temporary_.clear();
  return absl::OkStatus();
}

absl::Status BlobStore::Commit(TenantId tenant, const wire::Hash& root,
                               std::span<const wire::Hash> chunks, uint64_t size_bytes) {
  uint64_t count = size_bytes / wire::kBlobChunkBytes + (size_bytes % wire::kBlobChunkBytes != 0);
  if (chunks.size() != count || count > wire::kBlobChunksMax) {
    return absl::InvalidArgumentError(absl::StrCat(size_bytes, " bytes in ", chunks.size(),
                                                   " chunks; expected ", count, ", limit ",
                                                   wire::kBlobChunksMax));
  }
  if (wire::MerkleRoot(chunks, size_bytes) != root) {
    return absl::InvalidArgumentError("the root is not that of these chunks");
  }
  for (size_t i = 0; i < chunks.size(); ++i) {
    struct stat info;
    if (stat(ChunkPath(tenant, chunks[i]).c_str(), &info) != 0) {
      return absl::NotFoundError(
          absl::StrCat("chunk ", i, " (", wire::ToHex(chunks[i]), ") was not uploaded"));
    }
    uint64_t expected =
        i + 1 < count ? wire::kBlobChunkBytes : size_bytes - i * wire::kBlobChunkBytes;
    if (static_cast<uint64_t>(info.st_size) != expected) {
      return absl::InvalidArgumentError(
          absl::StrCat("chunk ", i, " has ", info.st_size, " bytes; expected ", expected));
    }
  }
  std::string target = RootPath(tenant, root);
  std::error_code error;
  fs::create_directories(fs::path(target).parent_path(), error);
  if (error) return DiskError("create folder", error.value());
  std::string text = absl::StrCat(size_bytes, " ", chunks.size(), "\n");
  for (const wire::Hash& chunk : chunks) text += wire::AsBytes(chunk);
  std::string temporary = TemporaryPath();
  int fd = open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return DiskError("open", errno);
  absl::Status status = WriteAll(fd, text);
  if (close(fd) != 0 && status.ok()) status = DiskError("close", errno);
  if (status.ok() && rename(temporary.c_str(), target.c_str()) != 0)
    status = DiskError("rename", errno);
  if (!status.ok()) unlink(temporary.c_str());
  return status;
}

absl::StatusOr<BlobStore::Blob> BlobStore::Find(TenantId tenant, const wire::Hash& root) const {
  std::ifstream file(RootPath(tenant, root), std::ios::binary);
  if (!file)
    return absl::NotFoundError(absl::StrCat("no blob ", wire::ToHex(root), " was committed"));
  Blob blob;
  size_t count = 0;
  file >> blob.size_bytes >> count;
  file.get();
  bool good = file.good() && count <= wire::kBlobChunksMax;
  if (good) {
    blob.chunks.resize(count);
    for (wire::Hash& chunk : blob.chunks)
      file.read(reinterpret_cast<char*>(chunk.data()), chunk.size());
    good = !file.fail() && wire::MerkleRoot(blob.chunks, blob.size_bytes) == root;
  }
  if (!good)
    return absl::DataLossError(absl::StrCat("the list of blob ", wire::ToHex(root), " is damaged"));
  return blob;
}

absl::StatusOr<std::string> BlobStore::ReadChunk(TenantId tenant, const wire::Hash& chunk) const {
  std::string path = ChunkPath(tenant, chunk);
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError(absl::StrCat("chunk ", wire::ToHex(chunk), " is not here"));
  std::string bytes(wire::kBlobChunkBytes, '\0');
  file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  bytes.resize(static_cast<size_t>(file.gcount()));
  if (wire::HashChunk(bytes) != chunk) {
    unlink(path.c_str());
    return absl::DataLossError(
        absl::StrCat("chunk ", wire::ToHex(chunk), " was damaged on disk; put it again"));
  }
  return bytes;
}

}  // namespace outboard::gateway
