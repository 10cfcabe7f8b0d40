#include "worker/sandbox/granted_parts.h"

#include <errno.h>
#include <linux/seccomp.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <mutex>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/environment.h"
#include "worker/sandbox/driver_root.h"
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
      _exit(AwaitIds(pair[1]) && (!hide || EnterEmptyRoot() == nullptr) ? 0 : 1);
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

std::string_view ValueOf(const char* variable) {
  const char* const value = std::getenv(variable);
  return value == nullptr ? "" : value;
}

// Empty: they stand, or nothing needs them.
std::mutex driver_walls_mutex;
std::string* const why_no_driver_walls = new std::string;  // outlives every thread
std::string WhyNoDriverWalls() {
  const std::lock_guard lock(driver_walls_mutex);
  return *why_no_driver_walls;
}

}  // namespace

bool IsSandboxOff() { return ValueOf("OUTBOARD_SANDBOX") == "0"; }

bool NeedsDriver() {
  const std::string_view device = ValueOf("OUTBOARD_DEVICE");
  return device == "opencl" || device == "cuda";
}

void DoWithoutDriverWalls(const std::string& why) {
  const std::lock_guard lock(driver_walls_mutex);
  *why_no_driver_walls = why;
}

SandboxParts PartsWithoutDriverWalls() {
  SandboxParts parts = GrantedParts();
  for (const SandboxPart part :
       {SandboxPart::kFiles, SandboxPart::kProcesses, SandboxPart::kSystemCalls})
    parts.Remove(part);
  if (geteuid() == 0) parts.Remove(SandboxPart::kUser);  // the files are root's
  static const bool granted = Grants(parts);
  return granted ? parts : SandboxParts();
}

SandboxParts PartsFor(SandboxProfile profile) {
  return profile != SandboxProfile::kExecutor || WhyNoDriverWalls().empty()
             ? GrantedParts()
             : PartsWithoutDriverWalls();
}

std::string WhatIsMissing() {
  if (kIsSanitizersBuild) return "";
  if (IsSandboxOff()) return "OUTBOARD_SANDBOX=0: there is no sandbox";
  std::vector<std::string> lines;
  if (const std::string missing = MissingParts(GrantedParts()); !missing.empty())
    lines.push_back(absl::StrCat("the kernel does not grant ", missing));
  if (const std::string why = WhyNoDriverWalls(); !why.empty()) {
    lines.push_back(absl::StrCat(
        "executors see the machine's files and processes and may use all system calls, since the "
        "driver of OUTBOARD_DEVICE=",
        std::string(ValueOf("OUTBOARD_DEVICE")), " does not work behind walls (", why, ")"));
  } else if (const int count = NeedsDriver() ? CountDeviceFiles() : 0; count > 1) {
    lines.push_back(absl::StrCat("executors may open the device files of all ", count,
                                 " GPUs of this machine"));
  }
  return absl::StrJoin(lines, "; ");
}

SandboxParts GrantedParts() {
  if (IsSandboxOff() || kIsSanitizersBuild) return SandboxParts();
  static const SandboxParts granted = FindGranted();
  return granted;
}

}  // namespace outboard::worker
