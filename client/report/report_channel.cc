#include "client/report/report_channel.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <mutex>

namespace outboard::internal {
namespace {

std::atomic<uint64_t> ended_micro_usd{0};

// -1: nobody reads. The program's own children must not report in its name.
int OpenChannel() {
  const char* const text = std::getenv("OUTBOARD_REPORT_FD");
  if (text == nullptr) return -1;
  int fd = -1;
  const char* const end = text + std::strlen(text);
  if (std::from_chars(text, end, fd).ptr != end || fd < 0) return -1;
  const int flags = fcntl(fd, F_GETFD);
  if (flags < 0 || fcntl(fd, F_SETFD, flags | FD_CLOEXEC) != 0) return -1;
  return fd;
}

int Channel() {
  static const int fd = OpenChannel();
  return fd;
}

// Without the signal that a write to a pipe without reader brings, which would end the program.
void WriteQuietly(int fd, const std::string& line) {
  static std::mutex one_at_a_time;
  const std::lock_guard lock(one_at_a_time);
  sigset_t pipe, before, pending;
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  sigpending(&pending);
  pthread_sigmask(SIG_BLOCK, &pipe, &before);
  const bool broken = write(fd, line.data(), line.size()) < 0;
  if (broken && sigismember(&pending, SIGPIPE) == 0) {
    const timespec now{};
    sigtimedwait(&pipe, nullptr, &now);
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace

bool HasReportChannel() { return Channel() >= 0; }

void WriteReport(const std::string& words, uint64_t open_micro_usd) {
  const int fd = Channel();
  if (fd < 0) return;
  std::string line = words;
  if (!line.empty()) line += ' ';
  line += "cost_micro_usd=" + std::to_string(ended_micro_usd + open_micro_usd) + "\n";
  WriteQuietly(fd, line);
}

void ReportEndedSession(uint64_t cost_micro_usd) {
  if (Channel() < 0) return;
  ended_micro_usd += cost_micro_usd;
  WriteReport("", 0);
}

}  // namespace outboard::internal
