#include "tests/worker/sandbox_attempts.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/fs.h>
#include <linux/keyctl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include <cstddef>

namespace outboard::test {
namespace {

using Outside = OutsideTargets;

int Errno(long result) { return result < 0 ? errno : 0; }

int OpenOf(const char* path, int flags) {
  const int fd = open(path, flags | O_CLOEXEC, 0600);
  if (fd < 0) return errno;
  close(fd);
  return 0;
}

int SocketOf(int family, int type) {
  const int fd = socket(family, type, 0);
  if (fd < 0) return errno;
  close(fd);
  return 0;
}

int ConnectTo(int family, const sockaddr* address, socklen_t length) {
  const int fd = socket(family, SOCK_STREAM, 0);
  if (fd < 0) return errno;
  const int error = Errno(connect(fd, address, length));
  close(fd);
  return error;
}

int ConnectToPort(const Outside& outside) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(outside.port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return ConnectTo(AF_INET, reinterpret_cast<sockaddr*>(&address), sizeof address);
}

int ConnectToAbstract(const Outside& outside) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  memcpy(address.sun_path + 1, outside.address.data(), outside.address.size());
  return ConnectTo(
      AF_UNIX, reinterpret_cast<sockaddr*>(&address),
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + outside.address.size()));
}

// 0 if any descriptor besides the standard ones and the socket is open.
int UseAnyDescriptor(const Outside&) {
  for (int fd = 4; fd < 4096; ++fd)
    if (fcntl(fd, F_GETFD) >= 0) return 0;
  return EBADF;
}

int ReadStandardError(const Outside&) {
  const int flags = fcntl(2, F_GETFL);
  struct stat info {};
  if (flags < 0 || fstat(2, &info) != 0) return EBADF;
  if (S_ISSOCK(info.st_mode)) return ENOTSUP;  // nothing is sent by that way
  return (flags & O_ACCMODE) == O_WRONLY ? EBADF : 0;
}

// ENOTSOCK is the answer of a log that is no socket: the call was let through.
int ShutDownLog(int64_t descriptor) {
  const int error = Errno(syscall(SYS_shutdown, descriptor, SHUT_RDWR));
  return error == ENOTSOCK ? 0 : error;
}

int CloseIfOpen(int fd) {
  if (fd < 0) return errno;
  close(fd);
  return 0;
}

int SeeAnotherName(const Outside&) {
  utsname name{};
  if (syscall(SYS_uname, &name) != 0) return errno;
  return strcmp(name.nodename, "outboard") == 0 ? EPERM : 0;  // its own, which is no secret
}

int Fork(const Outside&) {
  const long pid = syscall(SYS_fork);
  if (pid == 0) _exit(0);
  if (pid < 0) return errno;
  waitpid(static_cast<pid_t>(pid), nullptr, 0);
  return 0;
}

int CloneProcess(unsigned long flags) {
  const long pid = syscall(SYS_clone, flags | SIGCHLD, nullptr, nullptr, nullptr, 0);
  if (pid == 0) _exit(0);
  if (pid < 0) return errno;
  waitpid(static_cast<pid_t>(pid), nullptr, 0);
  return 0;
}

int Clone3(const Outside&) {
  struct {
    uint64_t words[11] = {};
  } arguments;
  arguments.words[4] = SIGCHLD;
  const long pid = syscall(SYS_clone3, &arguments, sizeof arguments);
  if (pid == 0) _exit(0);
  if (pid < 0) return errno;
  waitpid(static_cast<pid_t>(pid), nullptr, 0);
  return 0;
}

int ReadMemoryOf(const Outside& outside) {
  char here[8];
  iovec local{here, sizeof here}, remote{&errno, sizeof here};
  return Errno(process_vm_readv(outside.pid, &local, 1, &remote, 1, 0));
}

int MapAs(int protection, int flags) {
  void* const at = mmap(nullptr, 4096, protection, flags | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) return errno;
  munmap(at, 4096);
  return 0;
}

int ProtectAs(int protection) {
  void* const at = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) return errno;
  const int error = Errno(mprotect(at, 4096, protection));
  munmap(at, 4096);
  return error;
}

int TakeAllRights(const Outside&) {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct all[2] = {{1u << CAP_SYS_ADMIN, 1u << CAP_SYS_ADMIN, 0}, {0, 0, 0}};
  return Errno(syscall(SYS_capset, &header, all));
}

int RaiseLimit(const Outside&) {
  rlimit more{RLIM_INFINITY, RLIM_INFINITY};
  return Errno(syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, &more, nullptr));
}

int LiveOn(const Outside&) { return Errno(prctl(PR_SET_PDEATHSIG, 0)); }

int TypeIntoTerminal(const Outside&) {
  const char letter = 'x';
  return Errno(ioctl(2, TIOCSTI, &letter));
}

}  // namespace

const std::vector<SandboxAttempt>& SandboxAttempts() {
  constexpr char kRoot[] = "the empty root", kRights[] = "no rights (capabilities)";
  constexpr char kNetwork[] = "the network namespace", kPids[] = "the PID namespace";
  constexpr char kAppend[] = "opened again, to append only";
  constexpr char kReadOnly[] = "a root that is read-only";
  constexpr char kDescriptors[] = "close_range at the start", kLimit[] = "the limit (setrlimit)";
  static const std::vector<SandboxAttempt> attempts = {
      // ---- the network
      {"open a TCP socket", [](const Outside&) { return SocketOf(AF_INET, SOCK_STREAM); }, nullptr},
      {"open a UDP socket", [](const Outside&) { return SocketOf(AF_INET6, SOCK_DGRAM); }, nullptr},
      {"open a unix socket", [](const Outside&) { return SocketOf(AF_UNIX, SOCK_STREAM); },
       nullptr},
      {"open a netlink socket", [](const Outside&) { return SocketOf(AF_NETLINK, SOCK_RAW); },
       nullptr},
      {"open a raw socket", [](const Outside&) { return SocketOf(AF_PACKET, SOCK_RAW); }, kRights},
      {"open a vsock", [](const Outside&) { return SocketOf(AF_VSOCK, SOCK_STREAM); }, nullptr},
      {"open a crypto socket", [](const Outside&) { return SocketOf(AF_ALG, SOCK_SEQPACKET); },
       nullptr},
      {"connect to a port of the machine", ConnectToPort, kNetwork},
      {"connect to an abstract unix socket", ConnectToAbstract, kNetwork},
      {"make a socket pair",
       [](const Outside&) {
         int pair[2];
         if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0) return errno;
         close(pair[0]);
         close(pair[1]);
         return 0;
       },
       nullptr},
      {"listen at its socket", [](const Outside&) { return Errno(listen(3, 1)); }, "its socket"},
      // ---- files
      {"read /etc/passwd", [](const Outside&) { return OpenOf("/etc/passwd", O_RDONLY); }, kRoot},
      {"read a file of the supervisor's",
       [](const Outside& outside) { return OpenOf(outside.file.c_str(), O_RDONLY); }, kRoot},
      {"write a file of the supervisor's",
       [](const Outside& outside) { return OpenOf(outside.file.c_str(), O_WRONLY); }, kRoot},
      {"read it by the way up",
       [](const Outside& outside) {
         return OpenOf(("../../../../../../../.." + outside.file).c_str(), O_RDONLY);
       },
       kRoot},
      {"read /proc/self/environ",
       [](const Outside&) { return OpenOf("/proc/self/environ", O_RDONLY); }, kRoot},
      {"read the supervisor's environment",
       [](const Outside& outside) {
         return OpenOf(("/proc/" + std::to_string(outside.pid) + "/environ").c_str(), O_RDONLY);
       },
       kRoot},
      {"read the machine's devices", [](const Outside&) { return OpenOf("/dev/mem", O_RDONLY); },
       kRoot},
      {"read /sys", [](const Outside&) { return OpenOf("/sys/kernel", O_RDONLY); }, kRoot},
      {"open a file by its handle",
       [](const Outside&) {
         struct {
           file_handle head = {8, 1, {}};
           char rest[8] = {};
         } handle;
         return Errno(open_by_handle_at(3, &handle.head, O_RDONLY));
       },
       kRights},
      {"write into a new file of its root",
       [](const Outside&) { return OpenOf("/new", O_WRONLY | O_CREAT); }, kReadOnly},
      {"rename and remove files",
       [](const Outside& outside) {
         if (Errno(rename(outside.file.c_str(), "/moved")) == 0) return 0;
         return Errno(unlink(outside.file.c_str()));
       },
       kRoot},
      {"make a folder", [](const Outside&) { return Errno(mkdir("/folder", 0700)); }, kReadOnly},
      {"make a symbolic link", [](const Outside&) { return Errno(symlink("/etc", "/link")); },
       kReadOnly},
      {"make a device node",
       [](const Outside&) { return Errno(mknod("/null", S_IFCHR | 0600, 0x103)); }, kRights},
      {"write the program", [](const Outside&) { return OpenOf("/proc/self/exe", O_WRONLY); },
       kRoot},
      {"cut the program short", [](const Outside&) { return Errno(truncate("/proc/self/exe", 0)); },
       kRoot},
      // Of a worker that is not root's the file is its executors' own.
      {"let everybody write the program",
       [](const Outside&) { return Errno(chmod("/proc/self/exe", 0755)); }, nullptr},
      {"say when the program was changed",
       [](const Outside&) { return Errno(utimensat(AT_FDCWD, "/proc/self/exe", nullptr, 0)); },
       nullptr},
      {"give the program an attribute",
       [](const Outside&) { return Errno(setxattr("/proc/self/exe", "user.outboard", "x", 1, 0)); },
       nullptr},
      {"change the mode of a file by its descriptor",
       [](const Outside&) { return Errno(fchmod(2, 0600)); }, nullptr},
      {"change the flags of a file by its descriptor",
       [](const Outside&) {
         int flags = FS_NODUMP_FL;
         return Errno(ioctl(2, FS_IOC_SETFLAGS, &flags));
       },
       nullptr},
      {"write the kernel's settings",
       [](const Outside&) { return OpenOf("/proc/sys/kernel/shmmax", O_WRONLY); }, kRoot},
      {"give a file another owner", [](const Outside&) { return Errno(chown("/", 1, 1)); },
       kRights},
      {"find a descriptor that was left open", UseAnyDescriptor, kDescriptors},
      {"read from the supervisor's terminal or log", ReadStandardError, kAppend},
      {"write over the supervisor's log",
       [](const Outside&) {
         struct stat info {};
         if (fstat(2, &info) == 0 && !S_ISREG(info.st_mode)) return EINVAL;  // there is none
         return Errno(ftruncate(2, info.st_size));
       },
       nullptr},
      {"empty the supervisor's log",
       [](const Outside&) {
         struct stat info {};
         if (fstat(2, &info) == 0 && !S_ISREG(info.st_mode)) return EINVAL;
         return Errno(ftruncate(2, 0));
       },
       nullptr},
      {"shut the supervisor's log down", [](const Outside&) { return ShutDownLog(2); }, nullptr},
      {"shut it down by a number of 64 bits",
       [](const Outside&) { return ShutDownLog((int64_t{1} << 32) + 2); }, nullptr},
      {"copy the supervisor's log (fcntl)",
       [](const Outside&) { return CloseIfOpen(fcntl(2, F_DUPFD_CLOEXEC, 10)); }, nullptr},
      {"copy the supervisor's log (dup3)",
       [](const Outside&) { return CloseIfOpen(dup3(2, 10, O_CLOEXEC)); }, nullptr},
      // ---- other processes
      {"signal the supervisor", [](const Outside& outside) { return Errno(kill(outside.pid, 0)); },
       kPids},
      {"signal every process", [](const Outside&) { return Errno(kill(-1, 0)); }, kPids},
      {"take hold of the supervisor (pidfd)",
       [](const Outside& outside) { return Errno(syscall(SYS_pidfd_open, outside.pid, 0)); },
       kPids},
      {"trace the supervisor",
       [](const Outside& outside) {
         return Errno(ptrace(PTRACE_ATTACH, outside.pid, nullptr, nullptr));
       },
       kPids},
      {"read the supervisor's memory", ReadMemoryOf, kPids},
      {"change the supervisor's limits",
       [](const Outside& outside) {
         rlimit now{};
         return Errno(syscall(SYS_prlimit64, outside.pid, RLIMIT_NOFILE, nullptr, &now));
       },
       kPids},
      {"slow the supervisor down",
       [](const Outside& outside) {
         return Errno(setpriority(PRIO_PROCESS, static_cast<id_t>(outside.pid), 19));
       },
       kPids},
      {"use other cores",
       [](const Outside&) {
         cpu_set_t all;
         memset(&all, 0xFF, sizeof all);
         return Errno(sched_setaffinity(0, sizeof all, &all));
       },
       nullptr},
      {"share memory (System V)",
       [](const Outside&) { return Errno(shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0600)); }, nullptr},
      // ---- programs and processes
      {"fork", Fork, nullptr},
      {"clone a process", [](const Outside&) { return CloneProcess(0); }, nullptr},
      {"clone a process (clone3)", Clone3, nullptr},
      {"clone into a user namespace", [](const Outside&) { return CloneProcess(CLONE_NEWUSER); },
       nullptr},
      {"run a program",
       [](const Outside&) {
         char* const none[] = {nullptr};
         return Errno(execve("/bin/sh", none, none));
       },
       kRoot},
      {"make a file in memory", [](const Outside&) { return Errno(memfd_create("x", 0)); },
       nullptr},
      // ---- rights and namespaces
      {"mount", [](const Outside&) { return Errno(mount("x", "/", "tmpfs", 0, nullptr)); },
       kRights},
      {"mount /proc", [](const Outside&) { return Errno(mount("x", "/", "proc", 0, nullptr)); },
       kRights},
      {"make the root writable",
       [](const Outside&) {
         return Errno(mount(nullptr, "/", nullptr, MS_REMOUNT | MS_BIND, nullptr));
       },
       kRights},
      {"unmount", [](const Outside&) { return Errno(umount2("/", MNT_DETACH)); }, kRights},
      {"change the root", [](const Outside&) { return Errno(chroot("/")); }, kRights},
      {"leave for another mount namespace",
       [](const Outside&) { return Errno(unshare(CLONE_NEWNS)); }, kRights},
      {"leave for another network namespace",
       [](const Outside&) { return Errno(unshare(CLONE_NEWNET)); }, kRights},
      {"make a user namespace", [](const Outside&) { return Errno(unshare(CLONE_NEWUSER)); },
       nullptr},
      {"enter a namespace", [](const Outside&) { return Errno(setns(3, 0)); },
       "no such descriptor"},
      {"take another user's id", [](const Outside&) { return Errno(setuid(1)); }, kRights},
      {"take rights back", TakeAllRights, kRights},
      {"raise a limit", RaiseLimit, kRights},
      {"lock memory", [](const Outside&) { return Errno(mlockall(MCL_CURRENT)); }, kLimit},
      {"set the host's name", [](const Outside&) { return Errno(sethostname("x", 1)); }, kRights},
      {"set the clock",
       [](const Outside&) {
         const timespec now{1, 0};
         return Errno(clock_settime(CLOCK_REALTIME, &now));
       },
       kRights},
      {"outlive the supervisor", LiveOn, nullptr},
      // ---- the kernel's wide doors
      {"make an io_uring",
       [](const Outside&) {
         char parameters[128] = {};
         return Errno(syscall(SYS_io_uring_setup, 1, parameters));
       },
       nullptr},
      {"load a BPF program",
       [](const Outside&) {
         char attributes[128] = {};
         return Errno(syscall(SYS_bpf, 5, attributes, sizeof attributes));
       },
       kRights},
      {"watch the processor (perf)",
       [](const Outside&) {
         char attributes[128] = {};
         return Errno(syscall(SYS_perf_event_open, attributes, 0, -1, -1, 0));
       },
       nullptr},
      {"handle page faults (userfaultfd)",
       [](const Outside&) { return Errno(syscall(SYS_userfaultfd, 0)); }, nullptr},
      {"read a keyring",
       [](const Outside&) {
         return Errno(syscall(SYS_keyctl, KEYCTL_GET_KEYRING_ID, KEY_SPEC_SESSION_KEYRING, 0));
       },
       nullptr},
      {"load a kernel module",
       [](const Outside&) { return Errno(syscall(SYS_init_module, "", 0, "")); }, kRights},
      {"read the kernel's log",
       [](const Outside&) { return Errno(syscall(SYS_syslog, 3, nullptr, 0)); }, kRights},
      {"type into the terminal", TypeIntoTerminal, "a session without a terminal"},
      {"change its own filter",
       [](const Outside&) { return Errno(syscall(SYS_seccomp, 1, 0, nullptr)); }, nullptr},
      {"be traced",
       [](const Outside&) { return Errno(ptrace(PTRACE_TRACEME, 0, nullptr, nullptr)); }, nullptr},
      {"make its memory readable by others (dumpable)",
       [](const Outside&) { return Errno(prctl(PR_SET_DUMPABLE, 1)); }, nullptr},
      {"learn the machine's name", SeeAnotherName, nullptr},
      // ---- memory
      {"map memory that is writable and executable",
       [](const Outside&) { return MapAs(PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE); },
       nullptr},
      {"map executable memory",
       [](const Outside&) { return MapAs(PROT_READ | PROT_EXEC, MAP_PRIVATE); }, nullptr},
      {"make memory writable and executable",
       [](const Outside&) { return ProtectAs(PROT_READ | PROT_WRITE | PROT_EXEC); }, nullptr},
      {"make memory executable", [](const Outside&) { return ProtectAs(PROT_READ | PROT_EXEC); },
       nullptr, SandboxAttempt::Work::kWhoeverRunsKernels},
      {"map memory that no limit counts (shared)",
       [](const Outside&) { return MapAs(PROT_READ | PROT_WRITE, MAP_SHARED); }, nullptr},
      {"map memory that no limit counts (growing down)",
       [](const Outside&) { return MapAs(PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_GROWSDOWN); },
       nullptr},
  };
  return attempts;
}

}  // namespace outboard::test
