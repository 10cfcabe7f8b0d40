#include "worker/blob_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "compiler/ir/check.h"

namespace outboard::worker {
namespace {

absl::Status Unreadable(const char* what) {
  return absl::DataLossError(
      absl::StrCat("a blob cannot be read here: ", what, ": ", std::strerror(errno)));
}

struct File {
  int fd;
  ~File() {
    if (fd >= 0) close(fd);
  }
};

}  // namespace

absl::StatusOr<cpu::Buffer> ReadBlobFile(const std::string& path, Engine& engine) {
  const File file{open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  struct stat info;
  if (file.fd < 0 || fstat(file.fd, &info) != 0) return Unreadable("open");
  OB_ASSIGN_OR_RETURN(cpu::Buffer buffer, engine.NewBuffer(info.st_size));
  for (int64_t at = 0; at < info.st_size;) {
    const ssize_t got = read(file.fd, static_cast<char*>(buffer.data()) + at,
                             static_cast<size_t>(info.st_size - at));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return Unreadable("read");
    at += got;
  }
  return buffer;
}

}  // namespace outboard::worker
