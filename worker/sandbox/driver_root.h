// The part of the sandbox that hides the machine's files from an executor whose device has a driver
// (OUTBOARD_DEVICE=cuda or opencl): a root with what a driver needs to be loaded and to reach its
// device, as a container's runtime gives it, and nothing else (docs/sandbox.md has the list).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "worker/sandbox/sandbox_part.h"

namespace outboard::worker {

// Both calls return in one line what failed, empty: nothing. For a process with one thread, in a
// mount namespace of its own.
class DriverRoot {
 public:
  ~DriverRoot();

  // Takes what the new root is to show, by the rights that the process has: libraries may lie in a
  // folder that is its user's alone. Variables that name a library are changed to its whole path.
  std::string Take();

  // Makes the new root, which is the process's from then on, and drops the old one with all mounts
  // below it. By the id that the process is to keep: the folders are its own. Nothing can be
  // written but /tmp and /dev/shm, which are in memory and this process's own. /proc is that of its
  // PID namespace; without one, or where the kernel refuses it, this process's folder there alone.
  // Variables that name folders to write in are changed.
  std::string Enter(SandboxParts parts);

 private:
  // A part of the old root that is not mounted anywhere yet, or a link in it.
  struct Shown {
    std::string path;
    int tree = -1;
    bool is_folder = false;
    std::string link = {};  // what it names; no tree then
  };

  bool Need(bool done, const std::string& what);
  // Whether a path, without links in it, is in a folder that is shown whole.
  bool IsShown(const std::string& path) const;
  void TakePath(const std::string& path, uint64_t attributes, std::vector<Shown>& to);
  void TakeLibraries(const std::string& folder);
  void TakeAlternatives();
  void MakeFolder(const std::string& path);
  void MakeScratch(const std::string& path, const char* options, unsigned long flags);
  void MakeProc(SandboxParts parts);
  void Place(std::vector<Shown>& all);

  std::string failed_;                // the first that did
  std::vector<Shown> shown_, proc_;   // proc_: if there is no new one
  std::vector<std::string> folders_;  // shown whole
};

// From now on no file is opened to be written but below /tmp, /dev and the process's own folder in
// /proc, and none is cut short elsewhere: names there lead to files outside of this root, as
// /proc/self/exe does, which may be its user's own. By Landlock (Linux 5.13); a kernel without it
// has what file modes say. For a process without new privileges. Returns what failed, or nothing.
std::string ForbidOtherWrites();

// In one line, which device file of the driver's this process may not open; empty: none. For after
// the process has taken its id.
std::string DeviceFileThatIsClosed();

// How many GPUs have files in /dev that a DriverRoot shows, and instances of GPUs (MIG), at least;
// any of them can be opened there.
int CountDeviceFiles();

}  // namespace outboard::worker
