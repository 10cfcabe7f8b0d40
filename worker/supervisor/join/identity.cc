#include "worker/supervisor/join/identity.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace outboard::worker {
namespace {

constexpr size_t kIdentityBytes = 32;

}  // namespace

std::string NewIdentity() {
  std::string identity(kIdentityBytes, '\0');
  OB_CHECK(getentropy(identity.data(), identity.size()) == 0);
  return identity;
}

absl::StatusOr<std::string> OpenIdentity(const std::string& path) {
  std::error_code ignored;  // opening the file then says what is wrong
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  const auto failed = [&] {
    const std::string why = strerror(errno);
    if (file >= 0) close(file);
    return absl::UnavailableError(
        absl::StrCat("cannot keep this worker's identity in ", path, ": ", why));
  };
  if (file < 0) return failed();
  if (flock(file, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return failed();
    close(file);
    return NewIdentity();
  }
  std::string identity(kIdentityBytes + 1, '\0');
  const ssize_t count = pread(file, identity.data(), identity.size(), 0);
  if (count < 0) return failed();
  identity.resize(static_cast<size_t>(count));
  if (identity.size() == kIdentityBytes) return identity;  // the file stays open: the lock is on it
  identity = NewIdentity();
  if (ftruncate(file, 0) != 0 ||
      pwrite(file, identity.data(), identity.size(), 0) != static_cast<ssize_t>(kIdentityBytes) ||
      fsync(file) != 0)
    return failed();
  return identity;
}

}  // namespace outboard::worker
