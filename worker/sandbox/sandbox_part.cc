#include "worker/sandbox/sandbox_part.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace outboard::worker {

std::string MissingParts(SandboxParts parts) {
  static constexpr std::pair<SandboxPart, const char*> kNames[] = {
      {SandboxPart::kUser, "a user of its own (user namespaces)"},
      {SandboxPart::kFiles, "an empty root (mount namespaces, pivot_root)"},
      {SandboxPart::kProcesses, "PID namespaces"},
      {SandboxPart::kIpc, "IPC namespaces"},
      {SandboxPart::kHostName, "UTS namespaces"},
      {SandboxPart::kNetwork, "network namespaces"},
      {SandboxPart::kCgroup, "cgroup namespaces"},
      {SandboxPart::kSystemCalls, "filters of system calls (seccomp)"},
  };
  std::string missing;
  for (const auto& [part, name] : kNames)
    if (!parts.has(part)) absl::StrAppend(&missing, missing.empty() ? "" : ", ", name);
  return missing;
}

}  // namespace outboard::worker
