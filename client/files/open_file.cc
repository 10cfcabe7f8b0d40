#include "client/files/open_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace outboard::files {

absl::StatusOr<std::shared_ptr<OpenFile>> OpenFile::Open(const std::string& path, FileIndex index) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    const std::string message = absl::StrCat("cannot open ", path, ": ", strerror(errno));
    if (errno == ENOENT) return absl::NotFoundError(message);
    if (errno == EACCES) return absl::PermissionDeniedError(message);
    return absl::UnknownError(message);
  }
  struct stat info {};
  const absl::StatusOr<FileStamp> stamp = StampOf(fd);
  if (!stamp.ok() || fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    close(fd);
    return absl::InvalidArgumentError(absl::StrCat(path, " is no regular file"));
  }
  return std::shared_ptr<OpenFile>(new OpenFile(fd, *stamp, std::move(index)));
}

OpenFile::~OpenFile() {
  if (!found_.empty()) {
    const absl::StatusOr<FileStamp> now = StampOf(fd_);
    if (now.ok() && *now == stamp_) index_.Keep(stamp_, found_, names_, opened_ns_);
  }
  close(fd_);
}

std::vector<wire::BlobSource> OpenFile::Sources(std::span<const FileRange> ranges) {
  std::vector<std::optional<wire::BlobName>> names = index_.Find(stamp_, ranges);
  std::vector<wire::BlobSource> sources;
  for (size_t i = 0; i < ranges.size(); ++i) {
    wire::BlobSource source = wire::SourceOf(fd_, ranges[i].offset, ranges[i].size_bytes);
    source.read = [file = shared_from_this(), read = std::move(source.read)](
                      uint64_t offset, std::span<char> out) { return read(offset, out); };
    source.name = std::move(names[i]);
    sources.push_back(std::move(source));
  }
  return sources;
}

void OpenFile::Found(std::span<const FileRange> ranges, std::span<const wire::BlobName> names) {
  const std::lock_guard lock(mutex_);
  found_.insert(found_.end(), ranges.begin(), ranges.end());
  names_.insert(names_.end(), names.begin(), names.end());
}

absl::StatusOr<std::string> OpenFile::Read(uint64_t offset, uint64_t bytes) const {
  offset = std::min(offset, size_bytes());
  std::string read(std::min(bytes, size_bytes() - offset), '\0');
  if (absl::Status status = wire::SourceOf(fd_, offset, read.size()).read(0, read); !status.ok())
    return status;
  return read;
}

}  // namespace outboard::files
