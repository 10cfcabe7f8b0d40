#include "worker/init/node_log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "absl/strings/str_format.h"

namespace outboard::worker {
namespace {

constexpr size_t kLineBytesMax = 1000;

void WriteAll(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(fd, text.data(), text.size());
    if (written <= 0) return;  // a log that cannot be written has nobody to say so to
    text.remove_prefix(static_cast<size_t>(written));
  }
}

}  // namespace

void NodeLog::Say(std::string_view text) {
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  Write(absl::StrFormat("outboard node: [%d.%03d] %s", now.tv_sec, now.tv_nsec / 1'000'000,
                        absl::string_view(text.data(), text.size())));
}

void NodeLog::Add(std::string_view bytes) {
  for (const char c : bytes) {
    if (c != '\n') {
      rest_.push_back(c);
      if (rest_.size() < kLineBytesMax) continue;
    }
    Write(std::exchange(rest_, {}));
  }
}

void NodeLog::Write(std::string line) {
  for (char& c : line)
    if ((c < ' ' && c != '\t') || c == '\x7f') c = ' ';
  line += '\n';
  if (console_fd_ >= 0) WriteAll(console_fd_, line);
  const int fd = open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (fd < 0) return;
  struct stat now {};
  if (fstat(fd, &now) == 0 &&
      static_cast<size_t>(now.st_size) + line.size() > kNodeLogFileBytesMax &&
      ftruncate(fd, 0) != 0) {
    close(fd);
    return;
  }
  WriteAll(fd, line);
  close(fd);
}

}  // namespace outboard::worker
