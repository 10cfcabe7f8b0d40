#include "worker/sandbox/granted_parts.h"

#include <errno.h>
#include <linux/seccomp.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>

#include "worker/sandbox/empty_root.h"
#include "worker/sandbox/namespaces.h"

namespace outboard::worker {
namespace {

// True if a child can be made in these namespaces, and hide the machine's files if they are to.
bool Grants(SandboxParts parts) {
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) return false;
  const bool hide = parts.has(SandboxPart::kFiles);
  pid_t pid;
  {
    const AllSignalsBlocked blocked;
    pid = CloneInto(parts);
    if (pid == 0) {
      close(pair[0]);
      _exit(AwaitIds(pair[1]) && (!hide || EnterEmptyRoot(nullptr) == nullptr) ? 0 : 1);
    }
  }
  close(pair[1]);
  const bool started = pid > 0 && GiveIds(pair[0], pid, parts);
  close(pair[0]);
  if (pid <= 0) return false;
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return started && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

SandboxParts FindGranted() {
  SandboxParts granted = SandboxParts::All();
  if (!Grants(granted)) {
    granted = SandboxParts();
    // In this order: without a user namespace, the others are root's.
    for (const SandboxPart part :
         {SandboxPart::kUser, SandboxPart::kFiles, SandboxPart::kProcesses, SandboxPart::kIpc,
          SandboxPart::kHostName, SandboxPart::kNetwork, SandboxPart::kCgroup}) {
      SandboxParts more = granted;
      more.Add(part);
      if (Grants(more)) granted = more;
    }
  }
  const uint32_t action = SECCOMP_RET_ERRNO;
  if (syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action) == 0)
    granted.Add(SandboxPart::kSystemCalls);
  else
    granted.Remove(SandboxPart::kSystemCalls);
  return granted;
}

}  // namespace

bool IsSandboxOff() {
  const char* const value = std::getenv("OUTBOARD_SANDBOX");
  return value != nullptr && std::string_view(value) == "0";
}

SandboxParts GrantedParts() {
  if (IsSandboxOff() || kIsSanitizersBuild) return SandboxParts();
  static const SandboxParts granted = FindGranted();
  return granted;
}

}  // namespace outboard::worker
