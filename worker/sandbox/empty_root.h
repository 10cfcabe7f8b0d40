// The part of the sandbox that hides the machine's files.
#pragma once

namespace outboard::worker {

// Makes `folder` the root of this process, which is in a mount namespace of its own, and drops the
// old root with all mounts below it. nullptr: an empty file system that cannot be written. The new
// root has neither programs, nor devices, nor set-user-id files (noexec, nodev, nosuid).
// Returns nullptr, or the name of the call that failed, with errno set. Makes system calls and
// nothing else, so that a clone of a process with threads may call it.
const char* EnterEmptyRoot(const char* folder);

}  // namespace outboard::worker
