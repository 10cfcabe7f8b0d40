#include "worker/sandbox/namespaces.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/sandbox/sandbox_limits.h"

namespace outboard::worker {
namespace {

constexpr std::pair<SandboxPart, unsigned long> kNamespaces[] = {
    {SandboxPart::kUser, CLONE_NEWUSER},     {SandboxPart::kFiles, CLONE_NEWNS},
    {SandboxPart::kProcesses, CLONE_NEWPID}, {SandboxPart::kIpc, CLONE_NEWIPC},
    {SandboxPart::kHostName, CLONE_NEWUTS},  {SandboxPart::kNetwork, CLONE_NEWNET},
    {SandboxPart::kCgroup, CLONE_NEWCGROUP},
};

constexpr char kReady = 'r', kGo = 'g';

// Signals come to the supervisor's thread while it waits.
bool ReadWord(int sync, char* word) {
  ssize_t got;
  do {
    got = read(sync, word, 1);
  } while (got < 0 && errno == EINTR);
  return got == 1;
}

// Without SIGPIPE where the other side has ended.
bool SendWord(int sync, char word) {
  ssize_t sent;
  do {
    sent = send(sync, &word, 1, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  return sent == 1;
}

bool WriteText(const std::string& path, const std::string& text) {
  const int fd = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const bool written = write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  close(fd);
  return written;
}

bool WriteIdMaps(pid_t child) {
  const std::string folder = absl::StrCat("/proc/", child, "/");
  const auto map = [&](const char* file, uint32_t outside) {
    return WriteText(folder + file, absl::StrCat("0 ", outside, " 1\n"));
  };
  if (geteuid() == 0) {
    for (const uint32_t id : {limits::kFirstUser + static_cast<uint32_t>(child), limits::kNobody})
      if (map("gid_map", id)) return map("uid_map", id);
  }
  // user_namespaces(7): without a right to choose groups, they must be given up for good.
  return WriteText(folder + "setgroups", "deny\n") && map("gid_map", getegid()) &&
         map("uid_map", geteuid());
}

}  // namespace

AllSignalsBlocked::AllSignalsBlocked() {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before_);
}
AllSignalsBlocked::~AllSignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

// By the system call: the library's clone wants a stack for the child.
pid_t CloneInto(SandboxParts parts) {
  unsigned long flags = SIGCHLD;
  for (const auto& [part, flag] : kNamespaces)
    if (parts.has(part)) flags |= flag;
  return static_cast<pid_t>(syscall(SYS_clone, flags, nullptr, nullptr, nullptr, 0));
}

bool GiveIds(int sync, pid_t child, SandboxParts parts) {
  char word = 0;
  if (!ReadWord(sync, &word) || word != kReady) return false;
  if (parts.has(SandboxPart::kUser) && !WriteIdMaps(child)) return false;
  return SendWord(sync, kGo);
}

bool AwaitIds(int sync) {
  // Else /proc/PID/uid_map is root's alone, if the supervisor hides its memory.
  prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
  char word = 0;
  return SendWord(sync, kReady) && ReadWord(sync, &word) && word == kGo;
}

}  // namespace outboard::worker
