#include "worker/sandbox/empty_root.h"

#include <sys/mount.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace outboard::worker {

const char* EnterEmptyRoot() {
  // Nothing of what follows is told to the namespace that this one was copied from.
  if (mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return "mount (private)";
  // A folder that every machine has; /proc is not needed any more.
  if (mount("outboard", "/proc", "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_RDONLY,
            "size=4k,nr_inodes=2,mode=0555") != 0)
    return "mount (tmpfs)";
  if (chdir("/proc") != 0) return "chdir";
  // pivot_root(2), "pivot_root(".", ".")": the old root comes to lie over the new one.
  if (syscall(SYS_pivot_root, ".", ".") != 0) return "pivot_root";
  if (umount2(".", MNT_DETACH) != 0) return "umount";
  if (chdir("/") != 0) return "chdir /";
  return nullptr;
}

}  // namespace outboard::worker
