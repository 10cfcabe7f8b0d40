// The part of the sandbox that hides the machine's files from an executor whose device has a driver
// (OUTBOARD_DEVICE=cuda or opencl): a root with what a driver needs to be loaded and to reach its
// device, as a container's runtime gives it, and nothing else (docs/sandbox.md has the list).
#pragma once

#include <string>

namespace outboard::worker {

// Makes that root the one of this process, which has one thread and is in a mount namespace of its
// own, and drops the old root with all mounts below it. Nothing in it can be written but /tmp and
// /dev/shm, which are in memory and this process's own. `proc` is of its own PID namespace where it
// has one, which `own_processes` says; without, or where the kernel refuses one, it is this
// process's folder alone. Variables that name a library or a folder outside are changed.
// Returns in one line what failed, empty: nothing.
std::string EnterDriverRoot(bool own_processes);

// In one line, which device file of the driver's this process may not open; empty: none. For after
// the process has taken its id.
std::string DeviceFileThatIsClosed();

// How many GPUs have files in /dev that EnterDriverRoot shows; any of them can be opened there.
int CountDeviceFiles();

}  // namespace outboard::worker
