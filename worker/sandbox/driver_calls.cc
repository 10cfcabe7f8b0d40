#include "worker/sandbox/driver_calls.h"

#include <errno.h>
#include <linux/fs.h>
#include <linux/fsverity.h>
#include <sched.h>
#include <seccomp.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"

namespace outboard::worker {
namespace {

// set_mempolicy_home_node, of Linux 5.17: the last call that was looked at for this list. Between
// this number and the next one there were none; newer kernels have some there.
constexpr int kLastKnownCall = 450;
constexpr int kFirstOfNone = 335, kLastOfNone = 423;

// Calls that fail whatever their arguments are.
constexpr int kRefused[] = {
    // Programs and processes: a driver has threads.
    SYS_execve,
    SYS_execveat,
    SYS_fork,
    SYS_vfork,
    // Other processes, of which there are none in sight.
    SYS_ptrace,
    SYS_process_vm_readv,
    SYS_process_vm_writev,
    SYS_process_madvise,
    SYS_process_mrelease,
    SYS_kcmp,
    SYS_pidfd_open,
    SYS_pidfd_getfd,
    SYS_pidfd_send_signal,
    SYS_migrate_pages,
    SYS_move_pages,
    // Namespaces, mounts, roots.
    SYS_unshare,
    SYS_setns,
    SYS_mount,
    SYS_umount2,
    SYS_pivot_root,
    SYS_chroot,
    SYS_open_tree,
    SYS_move_mount,
    SYS_mount_setattr,
    SYS_fsopen,
    SYS_fsconfig,
    SYS_fsmount,
    SYS_fspick,
    SYS_quotactl,
    SYS_quotactl_fd,
    // Files past their names, and nodes.
    SYS_open_by_handle_at,
    SYS_name_to_handle_at,
    SYS_mknod,
    SYS_mknodat,
    SYS_fanotify_init,
    SYS_fanotify_mark,
    SYS_lookup_dcookie,
    // Who may do what with a file: it may own some, by /proc/self/exe and its descriptors.
    SYS_chmod,
    SYS_fchmod,
    SYS_fchmodat,
    SYS_chown,
    SYS_fchown,
    SYS_lchown,
    SYS_fchownat,
    SYS_setxattr,
    SYS_lsetxattr,
    SYS_fsetxattr,
    SYS_removexattr,
    SYS_lremovexattr,
    SYS_fremovexattr,
    SYS_utime,
    SYS_utimes,
    SYS_futimesat,
    SYS_utimensat,
    // Ids and rights, which it has none of.
    SYS_setuid,
    SYS_setgid,
    SYS_setreuid,
    SYS_setregid,
    SYS_setresuid,
    SYS_setresgid,
    SYS_setfsuid,
    SYS_setfsgid,
    SYS_setgroups,
    SYS_capset,
    SYS_personality,
    // The machine: its clock, its name, its log, its modules, its ports, its end.
    SYS_settimeofday,
    SYS_clock_settime,
    SYS_clock_adjtime,
    SYS_adjtimex,
    SYS_sethostname,
    SYS_setdomainname,
    SYS_syslog,
    SYS_init_module,
    SYS_finit_module,
    SYS_delete_module,
    SYS_create_module,
    SYS_query_module,
    SYS_get_kernel_syms,
    SYS_nfsservctl,
    SYS_kexec_load,
    SYS_kexec_file_load,
    SYS_reboot,
    SYS_swapon,
    SYS_swapoff,
    SYS_acct,
    SYS_iopl,
    SYS_ioperm,
    SYS_modify_ldt,
    SYS_uselib,
    SYS__sysctl,
    SYS_sysfs,
    SYS_ustat,
    SYS_vhangup,
    // Doors into the kernel through which many came: none is a driver's.
    SYS_bpf,
    SYS_perf_event_open,
    SYS_userfaultfd,
    SYS_io_uring_setup,
    SYS_io_uring_enter,
    SYS_io_uring_register,
    SYS_io_setup,
    SYS_io_submit,
    SYS_keyctl,
    SYS_add_key,
    SYS_request_key,
    SYS_seccomp,
    SYS_landlock_create_ruleset,
    SYS_landlock_add_rule,
    SYS_landlock_restrict_self,
    SYS_vmsplice,
    SYS_memfd_secret,
    // Cores and priorities are the supervisor's to give.
    SYS_sched_setaffinity,
    SYS_sched_setattr,
    SYS_setrlimit,
};

// The kernel reads the lower 32 bits of these arguments.
constexpr scmp_arg_cmp IsInt(unsigned argument, uint64_t value) {
  return {argument, SCMP_CMP_MASKED_EQ, 0xffffffff, value};
}
constexpr scmp_arg_cmp IsNot(unsigned argument, uint64_t value) {
  return {argument, SCMP_CMP_NE, value, 0};
}
constexpr scmp_arg_cmp Has(unsigned argument, uint64_t bit) {
  return {argument, SCMP_CMP_MASKED_EQ, bit, bit};
}
constexpr scmp_arg_cmp HasNot(unsigned argument, uint64_t bit) {
  return {argument, SCMP_CMP_MASKED_EQ, bit, 0};
}

// A call that fails if this is true of an argument. A call may have several lines.
struct RefusedArgument {
  int number;
  scmp_arg_cmp when;
};
std::vector<RefusedArgument> RefusedArguments(bool makes_processes) {
  std::vector<RefusedArgument> refused = {
      {SYS_socket, IsNot(0, AF_UNIX)},
      {SYS_socketpair, IsNot(0, AF_UNIX)},
      {SYS_prlimit64, IsNot(2, 0)},  // sets one
      {SYS_ioctl, IsInt(1, TIOCSTI)},
      {SYS_ioctl, IsInt(1, TIOCLINUX)},
      // Attributes of files that their owner may set by a descriptor to read.
      {SYS_ioctl, IsInt(1, FS_IOC_SETFLAGS)},
      {SYS_ioctl, IsInt(1, FS_IOC32_SETFLAGS)},
      {SYS_ioctl, IsInt(1, FS_IOC_SETVERSION)},
      {SYS_ioctl, IsInt(1, FS_IOC32_SETVERSION)},
      {SYS_ioctl, IsInt(1, FS_IOC_FSSETXATTR)},
      {SYS_ioctl, IsInt(1, FS_IOC_ENABLE_VERITY)},
      // It ends with its supervisor, and nobody reads its memory.
      {SYS_prctl, IsInt(0, PR_SET_PDEATHSIG)},
      {SYS_prctl, IsInt(0, PR_SET_DUMPABLE)},
      {SYS_prctl, IsInt(0, PR_SET_SECCOMP)},
  };
  for (const uint64_t space : {CLONE_NEWUSER, CLONE_NEWNS, CLONE_NEWPID, CLONE_NEWIPC, CLONE_NEWUTS,
                               CLONE_NEWNET, CLONE_NEWCGROUP})
    refused.push_back({SYS_clone, Has(0, space)});
  if (!makes_processes) refused.push_back({SYS_clone, HasNot(0, CLONE_THREAD)});
  return refused;
}

struct Release {
  void operator()(void* filter) const { seccomp_release(filter); }
};

// PoCL links what it has compiled by a program.
bool IsProcessesMaker() {
  const char* const device = std::getenv("OUTBOARD_DEVICE");
  return device != nullptr && std::string_view(device) == "opencl";
}

bool IsRefused(int call, bool makes_processes) {
  if (makes_processes && (call == SYS_execve || call == SYS_vfork || call == SYS_fork))
    return false;
  return std::ranges::find(kRefused, call) != std::end(kRefused);
}

using Filter = std::unique_ptr<void, Release>;

absl::Status Check(int result) {
  if (result == 0) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("seccomp: ", strerror(-result)));
}

}  // namespace

// Two filters, since one has a single answer for arguments that no line is about. The strictest
// answer of the two counts (seccomp(2)). The second one ends all loading of filters.
absl::Status RefuseCallsOfNoDriver() {
  const bool makes_processes = IsProcessesMaker();
  const Filter arguments(seccomp_init(SCMP_ACT_ALLOW));
  const Filter calls(seccomp_init(SCMP_ACT_ERRNO(ENOSYS)));
  if (arguments == nullptr || calls == nullptr)
    return absl::UnavailableError("no memory for a filter");
  absl::Status status = Check(seccomp_attr_set(calls.get(), SCMP_FLTATR_CTL_OPTIMIZE, 2));
  for (const RefusedArgument& refused : RefusedArguments(makes_processes))
    if (status.ok())
      status = Check(seccomp_rule_add_array(arguments.get(), SCMP_ACT_ERRNO(EPERM), refused.number,
                                            1, &refused.when));
  for (int call = 0; call <= kLastKnownCall; ++call) {
    // Its flags are in memory, which a filter cannot read; the C library then uses clone.
    if (!status.ok() || call == SYS_clone3) continue;
    if (call >= kFirstOfNone && call <= kLastOfNone) continue;
    const uint32_t action =
        IsRefused(call, makes_processes) ? SCMP_ACT_ERRNO(EPERM) : SCMP_ACT_ALLOW;
    status = Check(seccomp_rule_add(calls.get(), action, call, 0));
  }
  if (status.ok()) status = Check(seccomp_load(arguments.get()));
  if (status.ok()) status = Check(seccomp_load(calls.get()));
  return status;
}

}  // namespace outboard::worker
