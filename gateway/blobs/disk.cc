#include "gateway/blobs/disk.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"

namespace outboard::gateway {

namespace {

constexpr char kOfDisk[] = "outboard/disk";  // a payload, which stays within this process

// Omits the path, which would reach clients.
absl::Status DiskError(const char* what, int error) {
  const std::string message = absl::StrCat("blob store: ", what, ": ", strerror(error));
  if (error == ENOSPC || error == EDQUOT || error == EFBIG)
    return OfDisk(absl::ResourceExhaustedError(message));
  if (error == ENOENT) return absl::NotFoundError(message);
  return OfDisk(absl::UnavailableError(message));
}

}  // namespace

bool IsOfDisk(const absl::Status& status) { return status.GetPayload(kOfDisk).has_value(); }

absl::Status OfDisk(absl::Status status) {
  status.SetPayload(kOfDisk, absl::Cord());
  return status;
}

absl::StatusOr<int> Disk::Create(const std::string& path) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return DiskError("create", errno);
  return fd;
}

absl::Status Disk::Write(int fd, uint64_t offset, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t wrote = pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return DiskError("write", errno);
    bytes.remove_prefix(static_cast<size_t>(wrote));
    offset += static_cast<uint64_t>(wrote);
  }
  return absl::OkStatus();
}

absl::Status Disk::Close(int fd) {
  return close(fd) == 0 ? absl::OkStatus() : DiskError("close", errno);
}

absl::StatusOr<int> Disk::Open(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return DiskError("open", errno);
  return fd;
}

absl::StatusOr<size_t> Disk::Read(int fd, std::span<char> out) {
  size_t at = 0;
  while (at < out.size()) {
    const ssize_t got = read(fd, out.data() + at, out.size() - at);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return DiskError("read", errno);
    if (got == 0) break;
    at += static_cast<size_t>(got);
  }
  return at;
}

absl::Status Disk::Rename(const std::string& from, const std::string& to) {
  return rename(from.c_str(), to.c_str()) == 0 ? absl::OkStatus() : DiskError("rename", errno);
}

absl::Status Disk::Remove(const std::string& path) {
  return unlink(path.c_str()) == 0 ? absl::OkStatus() : DiskError("remove", errno);
}

absl::Status Disk::Sync(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return DiskError("open", errno);
  const int failed = fdatasync(fd) == 0 ? 0 : errno;
  close(fd);
  return failed == 0 ? absl::OkStatus() : DiskError("sync", failed);
}

absl::StatusOr<bool> Disk::MakeFolder(const std::string& path) {
  if (mkdir(path.c_str(), 0700) == 0) return true;
  if (errno == EEXIST) return false;
  return DiskError("create folder", errno);
}

void Disk::Touch(const std::string& path, int64_t unix_ms) {
  const timespec time{.tv_sec = unix_ms / 1000, .tv_nsec = unix_ms % 1000 * 1'000'000};
  const timespec both[2] = {time, time};
  utimensat(AT_FDCWD, path.c_str(), both, 0);
}

absl::StatusOr<Disk::Room> Disk::RoomAt(const std::string& folder) {
  struct statvfs info;
  if (statvfs(folder.c_str(), &info) != 0) return DiskError("statvfs", errno);
  return Room{.free_bytes = uint64_t{info.f_bavail} * info.f_frsize,
              .total_bytes = uint64_t{info.f_blocks} * info.f_frsize};
}

}  // namespace outboard::gateway
