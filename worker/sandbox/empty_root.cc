#include "worker/sandbox/empty_root.h"

#include <sys/mount.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace outboard::worker {
namespace {

constexpr unsigned long kFlags = MS_NOSUID | MS_NODEV | MS_NOEXEC;

// What the mount has already: a namespace that another user made may add flags and take none away.
unsigned long FlagsOf(const char* folder) {
  struct statvfs info {};
  if (statvfs(folder, &info) != 0) return 0;
  unsigned long flags = 0;
  if (info.f_flag & ST_NOATIME) flags |= MS_NOATIME;
  if (info.f_flag & ST_NODIRATIME) flags |= MS_NODIRATIME;
  if (info.f_flag & ST_RELATIME) flags |= MS_RELATIME;
  if (info.f_flag & ST_RDONLY) flags |= MS_RDONLY;
  return flags;
}

}  // namespace

const char* EnterEmptyRoot(const char* folder) {
  // Nothing of what follows is told to the namespace that this one was copied from.
  if (mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return "mount (private)";
  if (folder != nullptr) {
    if (mount(folder, folder, nullptr, MS_BIND, nullptr) != 0) return "mount (bind)";
    if (mount(nullptr, folder, nullptr, MS_REMOUNT | MS_BIND | kFlags | FlagsOf(folder), nullptr) !=
        0)
      return "mount (bind, remount)";
  } else {
    // A folder that every machine has; /proc is not needed any more.
    folder = "/proc";
    if (mount("outboard", folder, "tmpfs", kFlags | MS_RDONLY, "size=4k,nr_inodes=2,mode=0555") !=
        0)
      return "mount (tmpfs)";
  }
  if (chdir(folder) != 0) return "chdir";
  // pivot_root(2), "pivot_root(".", ".")": the old root comes to lie over the new one.
  if (syscall(SYS_pivot_root, ".", ".") != 0) return "pivot_root";
  if (umount2(".", MNT_DETACH) != 0) return "umount";
  if (chdir("/") != 0) return "chdir /";
  return nullptr;
}

}  // namespace outboard::worker
