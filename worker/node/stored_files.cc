#include "worker/node/stored_files.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "wire/limits.h"

namespace outboard::worker {
namespace {

absl::Status Changed() { return absl::DataLossError("a file to be stored has changed"); }

// A file as it was when it was found.
struct FileId {
  dev_t device;
  ino_t number;
  off_t size;
  timespec modified, changed;

  static FileId Of(const struct stat& info) {
    return {info.st_dev, info.st_ino, info.st_size, info.st_mtim, info.st_ctim};
  }
  bool operator==(const FileId& other) const {
    const auto same = [](const timespec& a, const timespec& b) {
      return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
    };
    return device == other.device && number == other.number && size == other.size &&
           same(modified, other.modified) && same(changed, other.changed);
  }
};

// -1 with errno. A name is a single component, so that without openat2, which kernels before 5.6
// and some containers lack, O_NOFOLLOW says the same. O_NONBLOCK: a fifo has no writer to wait for.
int OpenIn(int folder, const std::string& name) {
  constexpr int kFlags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW | O_NOCTTY;
  open_how how{};
  how.flags = kFlags;
  how.resolve = RESOLVE_NO_SYMLINKS | RESOLVE_BENEATH;
  const int fd = static_cast<int>(syscall(SYS_openat2, folder, name.c_str(), &how, sizeof how));
  if (fd >= 0 || (errno != ENOSYS && errno != EPERM)) return fd;
  return openat(folder, name.c_str(), kFlags);
}

// Opened for each read, since a session may store more files than a process may have open.
wire::BlobSource SourceOfFile(int folder, const std::string& name, const FileId& id) {
  return {static_cast<uint64_t>(id.size),
          [folder, name, id](uint64_t offset, std::span<char> out) -> absl::Status {
            const int fd = OpenIn(folder, name);
            if (fd < 0) return absl::DataLossError("a file to be stored has disappeared");
            struct stat info {};
            absl::Status status = fstat(fd, &info) == 0 && FileId::Of(info) == id
                                      ? wire::SourceOf(fd, 0, offset + out.size()).read(offset, out)
                                      : Changed();
            close(fd);
            return status;
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

}  // namespace

absl::StatusOr<std::unique_ptr<StoredFiles>> StoredFiles::Open(const std::string& folder) {
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) {
    const int error = errno;
    return absl::UnavailableError(
        absl::StrCat("cannot open the folder of a session's files: ", strerror(error)));
  }
  return std::unique_ptr<StoredFiles>(new StoredFiles(fd));
}

StoredFiles::~StoredFiles() { close(folder_); }

absl::StatusOr<std::optional<wire::BlobSource>> StoredFiles::Find(
    const wire::Hash& root, uint64_t bytes_max, const std::atomic<bool>& cancelled) const {
  const std::string name = wire::ToHex(root);
  const int fd = OpenIn(folder_, name);
  if (fd < 0 && errno == ENOENT) return std::optional<wire::BlobSource>();
  if (fd < 0) {
    const int error = errno;
    return absl::DataLossError(
        absl::StrCat("a file to be stored cannot be opened: ", strerror(error)));
  }
  struct stat info {};
  const bool known = fstat(fd, &info) == 0;
  close(fd);
  if (!known || !S_ISREG(info.st_mode))
    return absl::DataLossError("a file to be stored is no regular file");
  if (info.st_nlink != 1)
    return absl::DataLossError("a file to be stored has another name besides");
  if (static_cast<uint64_t>(info.st_size) > bytes_max)
    return absl::ResourceExhaustedError(absl::StrCat("a file to be stored of ", info.st_size,
                                                     " bytes; the session may store ", bytes_max));
  wire::BlobSource source = SourceOfFile(folder_, name, FileId::Of(info));
  OB_ASSIGN_OR_RETURN(wire::BlobName found, NameOf(source, cancelled));
  if (found.root != root) return absl::DataLossError("a file to be stored does not match its hash");
  source.name = std::move(found);
  return std::optional<wire::BlobSource>(std::move(source));
}

void StoredFiles::Remove(const wire::Hash& root) const {
  unlinkat(folder_, wire::ToHex(root).c_str(), 0);
}

}  // namespace outboard::worker
