// A small disk for one test, soon full: a tmpfs in a mount namespace that ends with the process.
// Needs root or unprivileged user namespaces.
#pragma once

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "tests/support/temp_folder.h"

namespace outboard::test {

// Call it in main, before starting threads: the kernel refuses later. False if it refuses anyway.
inline bool EnterOwnMounts() {
  const uid_t user = geteuid();
  const gid_t group = getegid();
  if (unshare(CLONE_NEWNS | (user == 0 ? 0 : CLONE_NEWUSER)) != 0) return false;
  if (user != 0) {
    std::ofstream("/proc/self/setgroups") << "deny";
    std::ofstream("/proc/self/uid_map") << "0 " << user << " 1";
    std::ofstream("/proc/self/gid_map") << "0 " << group << " 1";
  }
  return mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
}

class SmallDisk {
 public:
  explicit SmallDisk(int kib) {
    const std::string size = "size=" + std::to_string(kib) + "k";
    mounted_ = mount("tmpfs", folder_.path().c_str(), "tmpfs", 0, size.c_str()) == 0;
  }
  ~SmallDisk() {
    if (mounted_) umount2(folder_.path().c_str(), MNT_DETACH);
  }
  bool mounted() const { return mounted_; }
  const std::string& path() const { return folder_.path(); }

  // Fills the disk, until MakeRoom.
  void Fill() {
    const std::string block(4096, 'x');
    const int fd = open((path() + "/filler").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    while (write(fd, block.data(), block.size()) > 0) {
    }
    close(fd);
  }
  void MakeRoom() { unlink((path() + "/filler").c_str()); }

 private:
  TempFolder folder_;
  bool mounted_ = false;
};

}  // namespace outboard::test
