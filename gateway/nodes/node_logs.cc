#include "gateway/nodes/node_logs.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/printable.h"
#include "gateway/base/node_serial.h"
#include "wire/tls/private_file.h"

namespace outboard::gateway {
namespace {

// A terminal that shows the file shows text.
std::string Shown(std::string_view line) {
  return Escaped(line.substr(0, kNodeLogLineBytesMax)) + "\n";
}

}  // namespace

absl::Status NodeLogs::Append(const std::string& serial,
                              const std::vector<std::string_view>& lines) {
  OB_RETURN_IF_ERROR(CheckNodeSerial(serial));
  std::string text;
  for (const std::string_view line : lines) text += Shown(line);
  std::lock_guard lock(mutex_);
  OB_RETURN_IF_ERROR(tls::EnsurePrivateFolder(folder_));
  const std::string path = PathOf(serial);
  struct stat now {};
  if (stat(path.c_str(), &now) == 0 &&
      static_cast<size_t>(now.st_size) + text.size() > kNodeLogBytesMax)
    rename(path.c_str(), (path + ".1").c_str());
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
  const bool written =
      fd >= 0 && write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  const int error = errno;
  if (fd >= 0) close(fd);
  if (written) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("cannot keep a node's log: ", strerror(error)));
}

absl::StatusOr<std::string> NodeLogs::Read(const std::string& serial) const {
  OB_RETURN_IF_ERROR(CheckNodeSerial(serial));
  std::string all;
  bool found = false;
  for (const std::string& path : {PathOf(serial) + ".1", PathOf(serial)}) {
    const auto text = tls::ReadFile(path, /*is_secret=*/false, 2 * kNodeLogBytesMax);
    if (absl::IsNotFound(text.status())) continue;
    if (!text.ok()) return text.status();
    found = true;
    all += *text;
  }
  if (found) return all;
  return absl::NotFoundError(absl::StrCat("the node ", serial, " has logged nothing here"));
}

}  // namespace outboard::gateway
