// Clones this process into namespaces of its own and gives them their ids.
//
//   parent: CloneInto --> GiveIds: awaits the child's word, writes its id maps, says go
//   child:            --> AwaitIds: says that it is ready, waits for go
//
// The child is a copy of a process with threads, whose locks may be held by threads that it does
// not have: it may make system calls and nothing else.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <string>

#include "worker/sandbox/sandbox_part.h"

namespace outboard::worker {

// No signal handler of this process must run in the child before it execs.
class AllSignalsBlocked {
 public:
  AllSignalsBlocked();
  ~AllSignalsBlocked();
  AllSignalsBlocked(const AllSignalsBlocked&) = delete;
  AllSignalsBlocked& operator=(const AllSignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

// As fork, with a namespace for each of `parts` that is one; -1 with errno set. The first process
// of a PID namespace has the number 1 there, and its descendants end with it.
pid_t CloneInto(SandboxParts parts);

// `sync`: one end of a socket pair for each. False: the child has ended, or its ids were refused.
// If this process is root, id 0 of the child's user namespace is an id without rights outside
// (sandbox_limits.h), else it is this process's own.
bool GiveIds(int sync, pid_t child, SandboxParts parts);
bool AwaitIds(int sync);

}  // namespace outboard::worker
