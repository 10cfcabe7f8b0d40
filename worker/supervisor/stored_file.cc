#include "worker/supervisor/stored_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <span>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "telemetry/log.h"
#include "wire/limits.h"

namespace outboard::worker {
namespace {

// Up to here a file is gone at once, however it lies on the disk.
constexpr int64_t kSmallBytes = 16 << 20;

// A file as it was when a blob was found in it.
struct FileState {
  off_t size;
  timespec modified, changed;

  static FileState Of(const struct stat& info) {
    return {info.st_size, info.st_mtim, info.st_ctim};
  }
  bool operator==(const FileState& other) const {
    const auto same = [](const timespec& a, const timespec& b) {
      return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
    };
    return size == other.size && same(modified, other.modified) && same(changed, other.changed);
  }
};

wire::BlobSource SourceOfPiece(int fd, uint64_t begin, uint64_t size_bytes,
                               const FileState& state) {
  return {size_bytes, [fd, begin, size_bytes, state](uint64_t offset, std::span<char> out) {
            struct stat info {};
            if (fstat(fd, &info) != 0 || FileState::Of(info) != state)
              return absl::DataLossError("a file to be stored has changed");
            return wire::SourceOf(fd, begin, size_bytes).read(offset, out);
          }};
}

absl::StatusOr<wire::BlobName> NameOf(const wire::BlobSource& source,
                                      const std::atomic<bool>& cancelled) {
  wire::BlobName name;
  std::string chunk;
  for (uint64_t offset = 0; offset < source.size_bytes; offset += wire::kBlobChunkBytes) {
    if (cancelled) return absl::CancelledError("the session has ended");
    chunk.resize(std::min<uint64_t>(source.size_bytes - offset, wire::kBlobChunkBytes));
    OB_RETURN_IF_ERROR(source.read(offset, chunk));
    name.chunks.push_back(wire::HashChunk(chunk));
  }
  name.root = wire::MerkleRoot(name.chunks, source.size_bytes);
  return name;
}

// Where the file system makes no file without a name.
int MakeAndUnlink(const std::string& folder) {
  std::string path = folder + "/stored-XXXXXX";
  const int fd = mkostemp(path.data(), O_CLOEXEC);
  if (fd >= 0) unlink(path.c_str());
  return fd;
}

}  // namespace

std::unique_ptr<StoredFile> StoredFile::MakeOrNone(const std::string& folder) {
  absl::StatusOr<std::unique_ptr<StoredFile>> file = Make(folder);
  if (file.ok()) return *std::move(file);
  telemetry::LogError("session_not_stored", {{"message", file.status().message()}});
  return nullptr;
}

absl::StatusOr<std::unique_ptr<StoredFile>> StoredFile::Make(const std::string& folder) {
  int fd = open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR)) fd = MakeAndUnlink(folder);
  if (fd >= 0) return std::unique_ptr<StoredFile>(new StoredFile(fd));
  const int error = errno;
  return absl::UnavailableError(
      absl::StrCat("cannot make a file for what a session stores: ", strerror(error)));
}

StoredFile::~StoredFile() {
  struct stat info {};
  if (fstat(fd_, &info) == 0 && info.st_blocks * int64_t{512} > kSmallBytes) {
    try {
      std::thread([fd = fd_] { close(fd); }).detach();
      return;
    } catch (const std::system_error&) {  // no thread is left
    }
  }
  close(fd_);
}

absl::StatusOr<wire::BlobSource> StoredFile::Find(const wire::Hash& root, uint64_t offset,
                                                  uint64_t size_bytes, uint64_t bytes_max,
                                                  const std::atomic<bool>& cancelled) const {
  if (size_bytes > bytes_max)
    return absl::ResourceExhaustedError(absl::StrCat("a blob to be stored of ", size_bytes,
                                                     " bytes; the session may store ", bytes_max));
  struct stat info {};
  const bool known = fstat(fd_, &info) == 0;
  const auto file_bytes = static_cast<uint64_t>(info.st_size);
  if (!known || offset > file_bytes || size_bytes > file_bytes - offset)
    return absl::DataLossError("a blob to be stored is not in its file");
  wire::BlobSource source = SourceOfPiece(fd_, offset, size_bytes, FileState::Of(info));
  OB_ASSIGN_OR_RETURN(wire::BlobName found, NameOf(source, cancelled));
  if (found.root != root) return absl::DataLossError("a blob to be stored does not match its hash");
  source.name = std::move(found);
  return source;
}

void StoredFile::Clear() const {
  // What it leaves there is overwritten by what the executor writes next.
  [[maybe_unused]] const int cleared = ftruncate(fd_, 0);
}

}  // namespace outboard::worker
