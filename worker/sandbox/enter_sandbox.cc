#include "worker/sandbox/enter_sandbox.h"

#include <errno.h>
#include <grp.h>
#include <linux/capability.h>
#include <malloc.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>

#include "worker/sandbox/driver_calls.h"
#include "worker/sandbox/driver_root.h"
#include "worker/sandbox/empty_root.h"
#include "worker/sandbox/sandbox_limits.h"
#include "worker/sandbox/sandbox_plan.h"
#include "worker/sandbox/system_calls.h"

namespace outboard::worker {
namespace {

[[noreturn]] void End(const std::string& why) {
  std::fprintf(stderr, "outboard: a sandbox cannot be entered: %s\n", why.c_str());
  _exit(kExitNoSandbox);
}

[[noreturn]] void Fail(const char* what) { End(std::string(what) + ": " + strerror(errno)); }

void Need(bool done, const char* what) {
  if (!done) Fail(what);
}

std::optional<SandboxPlan> TakePlan() {
  const char* const text = std::getenv(kSandboxPlanVariable);
  if (text == nullptr) return std::nullopt;
  std::optional<SandboxPlan> plan = SandboxPlan::Decode(text);
  errno = EINVAL;
  Need(plan.has_value(), "the plan");
  unsetenv(kSandboxPlanVariable);
  return plan;
}

// Before other rights go, since these need some.
void DropBoundingSet() {
  for (int right = 0; right < 64; ++right) {
    if (prctl(PR_CAPBSET_DROP, right, 0, 0, 0) == 0) continue;
    if (errno == EINVAL) break;               // the kernel has no more
    if (errno == EPERM && right == 0) break;  // a user without rights, in no namespace of its own
    Fail("capabilities (bounding)");
  }
}

void TakeUser(const SandboxPlan& plan) {
  if (plan.user < 0) return;
  const auto id = static_cast<uid_t>(plan.user);
  // A supervisor that is not root had to give setgroups up (namespaces.cc).
  Need(setgroups(0, nullptr) == 0 || errno == EPERM, "setgroups");
  Need(setresgid(id, id, id) == 0, "setresgid");
  Need(setresuid(id, id, id) == 0, "setresuid");
}

void DropRights() {
  prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  const __user_cap_data_struct none[2] = {};
  Need(syscall(SYS_capset, &header, none) == 0, "capset");
  Need(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "no_new_privs");
}

void Limit(const SandboxPlan& plan) {
  const bool compiles = plan.profile == SandboxProfile::kCompiler;
  const auto limit = [](__rlimit_resource resource, rlim_t most, const char* name) {
    rlimit now{};
    if (getrlimit(resource, &now) == 0 && now.rlim_max < most) most = now.rlim_max;
    const rlimit both{most, most};
    Need(setrlimit(resource, &both) == 0, name);
  };
  limit(RLIMIT_CORE, 0, "RLIMIT_CORE");
  limit(RLIMIT_MEMLOCK, 0, "RLIMIT_MEMLOCK");
  limit(RLIMIT_MSGQUEUE, 0, "RLIMIT_MSGQUEUE");
  limit(RLIMIT_NOFILE, compiles ? limits::kCompilerFilesMax : limits::kExecutorFilesMax,
        "RLIMIT_NOFILE");
  // The others' is their session's (session_share.h).
  if (compiles) limit(RLIMIT_AS, limits::kCompilerAddressBytes, "RLIMIT_AS");
  mallopt(M_ARENA_MAX, limits::kArenasMax);  // else 64 MiB of it for each thread
  // Of an id that others have too, it would count their processes.
  if (plan.parts.has(SandboxPart::kUser)) limit(RLIMIT_NPROC, limits::kThreadsMax, "RLIMIT_NPROC");
}

// Without a user namespace it takes root's rights to mount, so that the id comes last.
void EnterDriverRoot(const SandboxPlan& plan) {
  const auto need = [](const std::string& failed) {
    if (!failed.empty()) End(failed);
  };
  DriverRoot root;
  need(root.Take());
  if (plan.parts.has(SandboxPart::kUser)) TakeUser(plan);
  need(root.Enter(plan.parts));
  DropBoundingSet();
  TakeUser(plan);
  need(DeviceFileThatIsClosed());
}

void OnAbort(int) { _exit(kExitAborted); }

}  // namespace

void EnterSandbox(int socket) {
  const std::optional<SandboxPlan> plan = TakePlan();
  if (!plan.has_value()) return;
  Need(syscall(SYS_close_range, socket + 1, ~0u, 0) == 0, "close_range");
  if (plan->parts.has(SandboxPart::kHostName))
    Need(sethostname("outboard", strlen("outboard")) == 0, "sethostname");
  if (plan->parts.has(SandboxPart::kFiles)) {
    if (plan->has_driver) {
      EnterDriverRoot(*plan);
    } else if (const char* const failed = EnterEmptyRoot()) {
      Fail(failed);
    }
  }
  DropBoundingSet();
  TakeUser(*plan);
  DropRights();
  Limit(*plan);
  Need(prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0, "PR_SET_DUMPABLE");
  Need(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0, "PR_SET_PDEATHSIG");  // a change of ids clears it
  if (plan->has_driver && plan->parts.has(SandboxPart::kFiles))
    if (const std::string failed = ForbidOtherWrites(); !failed.empty()) End(failed);
  if (getpid() == 1) signal(SIGABRT, OnAbort);
  if (plan->parts.has(SandboxPart::kSystemCalls))
    if (const absl::Status status =
            plan->has_driver ? RefuseCallsOfNoDriver() : AllowOnlyListedCalls(plan->profile);
        !status.ok())
      End(std::string(status.message()));
}

}  // namespace outboard::worker
