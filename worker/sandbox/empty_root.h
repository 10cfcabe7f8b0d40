// The part of the sandbox that hides the machine's files.
#pragma once

namespace outboard::worker {

// Makes an empty file system that cannot be written the root of this process, which is in a mount
// namespace of its own, and drops the old root with all mounts below it.
// Returns nullptr, or the name of the call that failed, with errno set. Makes system calls and
// nothing else, so that a clone of a process with threads may call it.
const char* EnterEmptyRoot();

}  // namespace outboard::worker
