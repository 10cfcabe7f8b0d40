#include "worker/sandbox/system_calls.h"

#include <asm/prctl.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <seccomp.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <initializer_list>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "worker/sandbox/sandbox_limits.h"

namespace outboard::worker {
namespace {

// A call, and what its arguments must be: all conditions of a line. A call may have several lines.
struct AllowedCall {
  int number;
  std::vector<scmp_arg_cmp> when = {};
};

constexpr scmp_arg_cmp Is(unsigned argument, uint64_t value) {
  return {argument, SCMP_CMP_EQ, value, 0};
}
constexpr scmp_arg_cmp HasNone(unsigned argument, uint64_t bits) {
  return {argument, SCMP_CMP_MASKED_EQ, bits, 0};
}

// What pthread_create asks for. Any other combination is a process, or a namespace.
constexpr uint64_t kThread = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD |
                             CLONE_SYSVSEM | CLONE_SETTLS | CLONE_PARENT_SETTID |
                             CLONE_CHILD_CLEARTID;
// Memory that no limit of the process counts, or that outlives it.
constexpr uint64_t kUncounted = MAP_SHARED | MAP_GROWSDOWN | MAP_HUGETLB | MAP_LOCKED;

std::vector<AllowedCall> CallsOfAll() {
  return {
      // The sockets and the standard descriptors. None of these opens one, but by being passed it.
      {SCMP_SYS(read)},
      {SCMP_SYS(write)},
      {SCMP_SYS(readv)},
      {SCMP_SYS(writev)},
      {SCMP_SYS(recvmsg)},
      {SCMP_SYS(recvfrom)},
      {SCMP_SYS(sendmsg)},
      {SCMP_SYS(sendto)},
      {SCMP_SYS(poll)},
      {SCMP_SYS(ppoll)},
      {SCMP_SYS(close)},
      {SCMP_SYS(fcntl), {Is(1, F_GETFL)}},
      {SCMP_SYS(fcntl), {Is(1, F_GETFD)}},
      {SCMP_SYS(fcntl), {Is(1, F_SETFD)}},
      {SCMP_SYS(fstat)},
      {SCMP_SYS(newfstatat)},
      {SCMP_SYS(lseek)},
      // Memory. Never writable and executable at a time; executable is a line of those that need
      // it.
      {SCMP_SYS(mmap), {HasNone(2, PROT_EXEC), HasNone(3, kUncounted)}},
      {SCMP_SYS(mprotect), {Is(2, PROT_NONE)}},
      {SCMP_SYS(mprotect), {Is(2, PROT_READ)}},
      {SCMP_SYS(mprotect), {Is(2, PROT_READ | PROT_WRITE)}},
      {SCMP_SYS(mremap), {Is(3, MREMAP_MAYMOVE)}},
      {SCMP_SYS(munmap)},
      {SCMP_SYS(madvise)},
      {SCMP_SYS(brk)},
      // Threads.
      {SCMP_SYS(clone), {Is(0, kThread)}},
      {SCMP_SYS(futex)},
      {SCMP_SYS(set_robust_list)},
      {SCMP_SYS(rseq)},
      {SCMP_SYS(gettid)},
      {SCMP_SYS(getpid)},
      {SCMP_SYS(sched_yield)},
      {SCMP_SYS(sched_getaffinity)},
      {SCMP_SYS(exit)},
      {SCMP_SYS(exit_group)},
      {SCMP_SYS(pause)},
      {SCMP_SYS(restart_syscall)},
      // Signals, to this process alone.
      {SCMP_SYS(rt_sigaction)},
      {SCMP_SYS(rt_sigprocmask)},
      {SCMP_SYS(rt_sigreturn)},
      {SCMP_SYS(sigaltstack)},
      {SCMP_SYS(tgkill), {Is(0, static_cast<uint64_t>(getpid()))}},
      // Time, chance, and how much memory the machine has.
      {SCMP_SYS(clock_gettime)},
      {SCMP_SYS(clock_nanosleep)},
      {SCMP_SYS(nanosleep)},
      {SCMP_SYS(gettimeofday)},
      {SCMP_SYS(getrandom)},
      {SCMP_SYS(getrusage)},
      {SCMP_SYS(sysinfo)},
      {SCMP_SYS(prlimit64), {Is(0, 0), Is(2, 0)}},  // reads
      // The registers of tiles, which a target is asked for and kernels use.
      {SCMP_SYS(arch_prctl), {Is(0, ARCH_GET_XCOMP_PERM)}},
      {SCMP_SYS(arch_prctl), {Is(0, ARCH_REQ_XCOMP_PERM)}},
  };
}

// Standard output and error may be the log's socket, which is the supervisor's too: shutdown(2) of
// it, or of a copy of it, would end the log of all. The kernel looks at the lower 32 bits of a
// descriptor only, so that "above 2" has to say what the upper ones are: a line for 3, and one for
// each power of two up to the limit of descriptors.
//
// An executor empties the file of what is to be stored (worker/executor/persist_writer.h); the log
// may be a file, too.
std::vector<AllowedCall> CallsAboveStandardDescriptors(SandboxProfile profile) {
  std::vector<AllowedCall> calls;
  const auto add = [&](const scmp_arg_cmp& descriptor) {
    calls.push_back({SCMP_SYS(shutdown), {descriptor}});
    calls.push_back({SCMP_SYS(dup3), {descriptor}});
    calls.push_back({SCMP_SYS(fcntl), {descriptor, Is(1, F_DUPFD_CLOEXEC)}});
    if (profile == SandboxProfile::kExecutor)
      calls.push_back({SCMP_SYS(ftruncate), {descriptor, Is(1, 0)}});
  };
  add(Is(0, 3));
  for (uint64_t least = 4; least < limits::kExecutorFilesMax; least *= 2)
    add({0, SCMP_CMP_MASKED_EQ, ~(least - 1), least});
  return calls;
}

// The ELF loader fills memory, then makes it executable (runtime/cpu/elf_loader.h).
std::vector<AllowedCall> CallsOfKernels() {
  return {
      {SCMP_SYS(mprotect), {Is(2, PROT_READ | PROT_EXEC)}},
  };
}

struct Release {
  void operator()(void* filter) const { seccomp_release(filter); }
};

}  // namespace

absl::Status AllowOnlyListedCalls(SandboxProfile profile) {
  const std::unique_ptr<void, Release> filter(seccomp_init(SCMP_ACT_ERRNO(EPERM)));
  if (filter == nullptr) return absl::UnavailableError("no memory for a filter");
  const auto check = [](int result) {
    if (result == 0) return absl::OkStatus();
    return absl::UnavailableError(absl::StrCat("seccomp: ", strerror(-result)));
  };
  absl::Status status = check(seccomp_attr_set(filter.get(), SCMP_FLTATR_CTL_OPTIMIZE, 2));
  const auto allow = [&](const std::vector<AllowedCall>& calls) {
    for (const AllowedCall& call : calls)
      if (status.ok())
        status = check(seccomp_rule_add_array(filter.get(), SCMP_ACT_ALLOW, call.number,
                                              static_cast<unsigned>(call.when.size()),
                                              call.when.data()));
  };
  allow(CallsOfAll());
  allow(CallsAboveStandardDescriptors(profile));
  if (profile != SandboxProfile::kCompiler) allow(CallsOfKernels());
  // Its flags are in memory, which a filter cannot read; the C library then uses clone.
  if (status.ok())
    status = check(seccomp_rule_add(filter.get(), SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0));
  if (status.ok()) status = check(seccomp_load(filter.get()));
  return status;
}

}  // namespace outboard::worker
