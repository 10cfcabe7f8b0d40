#include "wire/tls/private_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "wire/tls/limits.h"

namespace outboard::tls {
namespace {

absl::Status CannotWrite(const std::string& path, int error) {
  return absl::UnavailableError(absl::StrCat("cannot write ", path, ": ", strerror(error)));
}

bool WriteAll(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(file, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    text.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

}  // namespace

absl::Status WriteFile(const std::string& path, std::string_view text, bool is_secret,
                       Replace replace) {
  std::string temporary = path + ".XXXXXX";
  const int file = mkostemp(temporary.data(), O_CLOEXEC);  // mode 0600
  if (file < 0) return CannotWrite(path, errno);
  bool done = WriteAll(file, text) && (is_secret || fchmod(file, 0644) == 0) && fsync(file) == 0;
  if (done)
    done = replace == Replace::kYes ? rename(temporary.c_str(), path.c_str()) == 0
                                    : link(temporary.c_str(), path.c_str()) == 0;
  const int error = errno;
  close(file);
  if (!done || replace == Replace::kNo) unlink(temporary.c_str());
  if (done) return absl::OkStatus();
  if (error == EEXIST)
    return absl::AlreadyExistsError(absl::StrCat(path, " is there already; --force replaces it"));
  return CannotWrite(path, error);
}

bool IsOpenToOthers(const std::string& path, mode_t mode) {
  const char* const folder = std::getenv("CREDENTIALS_DIRECTORY");
  const bool is_credential = folder != nullptr && *folder == '/' &&
                             path.starts_with(std::string(folder) + "/") &&
                             path.find("/../") == std::string::npos;
  return (mode & (is_credential ? 007 : 077)) != 0;  // an access list shows as the group's rights
}

absl::StatusOr<std::string> ReadFile(const std::string& path, bool is_secret, size_t bytes_max) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) {
    const int error = errno;
    const std::string why = absl::StrCat("cannot read ", path, ": ", strerror(error));
    if (error == ENOENT) return absl::NotFoundError(why);
    if (error == EMFILE || error == ENFILE || error == EIO) return absl::UnavailableError(why);
    return absl::PermissionDeniedError(why);
  }
  struct stat info {};
  const bool is_file = fstat(file, &info) == 0 && S_ISREG(info.st_mode);
  const bool is_open_to_others = is_secret && IsOpenToOthers(path, info.st_mode);
  std::string text(bytes_max + 1, '\0');
  size_t size = 0;
  int error = 0;
  for (ssize_t count = 1; is_file && !is_open_to_others && count != 0 && size < text.size();) {
    count = read(file, text.data() + size, text.size() - size);
    if (count > 0) size += static_cast<size_t>(count);
    if (count < 0 && errno != EINTR) {
      error = errno;
      break;
    }
  }
  close(file);
  if (error != 0)
    return absl::UnavailableError(absl::StrCat("cannot read ", path, ": ", strerror(error)));
  if (!is_file) return absl::FailedPreconditionError(absl::StrCat(path, " is no file"));
  if (is_open_to_others)
    return absl::FailedPreconditionError(
        absl::StrCat(path, " holds a key that other users can read: chmod 600 ", path,
                     ", and replace the key if it may be known"));
  if (size > bytes_max)
    return absl::InvalidArgumentError(absl::StrCat(path, " has more than ", bytes_max, " bytes"));
  text.resize(size);
  return text;
}

absl::Status EnsurePrivateFolder(const std::string& path) {
  if (mkdir(path.c_str(), 0700) == 0 || errno == EEXIST) return absl::OkStatus();
  return CannotWrite(path, errno);
}

}  // namespace outboard::tls
