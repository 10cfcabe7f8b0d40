// Limits of sandboxed processes, by setrlimit(2). A limit that is hit is an error of the call that
// hit it, and ends no process.
#pragma once

#include <sys/resource.h>

#include <cstdint>

namespace outboard::worker::limits {

// Descriptors. A compile process has its socket and the standard ones; an executor also the
// session's data socket and files that it writes one after the other.
inline constexpr rlim_t kCompilerFilesMax = 16;
inline constexpr rlim_t kExecutorFilesMax = 256;
// Threads, which the kernel counts as processes: those of the largest pool
// (runtime/limits.h, kThreadsMax), the writer, the watchdog, and a driver's own.
inline constexpr rlim_t kThreadsMax = 320;
// What an executor's process may hold besides its session's tensors and its threads' stacks: heaps,
// graphs and plans, frames in flight, and what a new executor begins with (about 10 MB).
inline constexpr uint64_t kExecutorOwnBytes = uint64_t{1} << 30;
// Address space that any of the programs may have mapped besides what it can write: code, what the
// heap has reserved (64 MiB in each of kArenasMax pieces), and kernels.
inline constexpr uint64_t kReservedAddressBytes = uint64_t{512} << 20;
inline constexpr int kArenasMax = 4;
// All address space of a compile process; LLVM maps half a GiB before it does anything.
inline constexpr uint64_t kCompilerAddressBytes = uint64_t{4} << 30;
// Of one thread, reserved as it starts. Kernels keep up to 2 MiB there (runtime/limits.h).
inline constexpr rlim_t kStackBytes = 8 << 20;
// Of one stored file; the files of a session hold its tensors and a manifest.
inline constexpr uint64_t kStoredFileExtraBytes = uint64_t{64} << 20;
// /tmp and /dev/shm of an executor whose device has a driver, in memory: each so much, as a mount's
// options; and how many libraries it is shown of a folder that a variable names.
inline constexpr char kScratchMount[] = "mode=1777,size=64m,nr_inodes=1k";
inline constexpr size_t kNamedLibrariesMax = 512;

// Ids of processes whose supervisor is root: this plus the process's id, which is below 2^22 on
// Linux, so that no two have the same. systemd's table of ids (UIDS-GIDS) gives 1879048192 to
// 2147352575 to nobody.
inline constexpr uint32_t kFirstUser = 1'900'000'000;
// Where that range is not mapped into the supervisor's own user namespace: "nobody".
inline constexpr uint32_t kNobody = 65'534;

}  // namespace outboard::worker::limits
