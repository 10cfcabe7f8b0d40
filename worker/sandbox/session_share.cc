#include "worker/sandbox/session_share.h"

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <string>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "base/cores.h"
#include "worker/sandbox/granted_parts.h"
#include "worker/sandbox/sandbox_limits.h"

namespace outboard::worker {
namespace {

absl::Status LimitOf(pid_t pid, __rlimit_resource resource, uint64_t bytes, const char* name) {
  rlimit now{};
  if (prlimit(pid, resource, nullptr, &now) == 0) {
    const rlim_t most = std::min<rlim_t>(bytes, now.rlim_max);
    const rlimit both{most, most};
    if (prlimit(pid, resource, &both, nullptr) == 0) return absl::OkStatus();
  }
  return absl::UnavailableError(absl::StrCat(name, " of an executor: ", strerror(errno)));
}

uint64_t Sum(uint64_t a, uint64_t b) {
  return a > std::numeric_limits<uint64_t>::max() - b ? std::numeric_limits<uint64_t>::max()
                                                      : a + b;
}

}  // namespace

uint64_t ExecutorOwnBytes() {
  return limits::kExecutorOwnBytes + UsableCores().size() * limits::kStackBytes;
}

absl::Status LimitSessionMemory(pid_t pid, uint64_t session_bytes_max) {
  if (kIsSanitizersBuild) return absl::OkStatus();
  const uint64_t own = ExecutorOwnBytes();
  const uint64_t written = Sum(session_bytes_max, own);
  absl::Status status = LimitOf(pid, RLIMIT_DATA, written, "RLIMIT_DATA");
  // RLIMIT_DATA forgets what was written when it cannot be written any more (mprotect).
  if (status.ok() && !NeedsDriver())
    status = LimitOf(pid, RLIMIT_AS, Sum(written, limits::kReservedAddressBytes), "RLIMIT_AS");
  if (status.ok())
    status = LimitOf(pid, RLIMIT_FSIZE, Sum(session_bytes_max, limits::kStoredFileExtraBytes),
                     "RLIMIT_FSIZE");
  return status;
}

absl::Status MoveToCores(pid_t pid, const std::vector<int>& cores) {
  const cpu_set_t set = CoreMask(cores);
  std::error_code error;
  const std::filesystem::directory_iterator threads(absl::StrCat("/proc/", pid, "/task"), error);
  if (error) return absl::UnavailableError(absl::StrCat("an executor: ", error.message()));
  for (const auto& thread : threads)
    if (sched_setaffinity(std::atoi(thread.path().filename().c_str()), sizeof set, &set) != 0 &&
        errno != ESRCH)
      return absl::UnavailableError(absl::StrCat("cores of an executor: ", strerror(errno)));
  return absl::OkStatus();
}

}  // namespace outboard::worker
