#include "gateway/server/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace outboard::gateway {
namespace {

// "process 1234, since 2026-01-31T12:34:56Z", as the holder wrote it.
std::string HolderOf(int file) {
  std::array<char, 128> bytes;
  const ssize_t count = pread(file, bytes.data(), bytes.size(), 0);
  const std::string text(bytes.data(), count < 0 ? 0 : static_cast<size_t>(count));
  return text.substr(0, text.find('\n'));
}

}  // namespace

absl::StatusOr<FolderLock> FolderLock::Take(const std::string& data_folder, WallTime now) {
  const std::string path = data_folder + "/gateway.lock";
  const auto cannot = [&](const char* what) {
    return absl::UnavailableError(absl::StrCat("cannot ", what, " ", path, ": ", strerror(errno)));
  };
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0) return cannot("open");
  FolderLock lock(file);
  if (flock(file, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return cannot("lock");
    return absl::FailedPreconditionError(
        absl::StrCat("another gateway serves the data folder ", data_folder, ": ", HolderOf(file)));
  }
  const std::string holder = absl::StrCat("process ", getpid(), ", since ", ToString(now), "\n");
  if (ftruncate(file, 0) != 0 ||
      pwrite(file, holder.data(), holder.size(), 0) != static_cast<ssize_t>(holder.size()))
    return cannot("write");
  return lock;
}

FolderLock::FolderLock(FolderLock&& other) noexcept : file_(std::exchange(other.file_, -1)) {}

FolderLock& FolderLock::operator=(FolderLock&& other) noexcept {
  std::swap(file_, other.file_);
  return *this;
}

FolderLock::~FolderLock() {
  if (file_ >= 0) close(file_);
}

}  // namespace outboard::gateway
