// Which parts of the sandbox this machine grants, which of them each program gets, and what that
// means for whoever runs the worker. Threads: any.
#pragma once

#include <string>

#include "worker/sandbox/sandbox_part.h"
#include "worker/sandbox/sandbox_plan.h"

namespace outboard::worker {

// The parts that the kernel grants to children of this process, found once by trying, in some
// milliseconds. None with OUTBOARD_SANDBOX=0, for debugging and for comparing speed; none in a
// sanitizer's build, which needs /proc and system calls of its own.
SandboxParts GrantedParts();

// Those of them that programs of this profile get: all, but for executors after
// DoWithoutDriverWalls.
SandboxParts PartsFor(SandboxProfile profile);

// The parts that are left to an executor whose driver does not work behind the others: it has the
// machine's files, its processes, all system calls and, of a supervisor that is root, its id.
SandboxParts PartsWithoutDriverWalls();

// From now on executors have no more than those: `why`, in a few words. Any thread.
void DoWithoutDriverWalls(const std::string& why);

// True if this process's executors use a device with a driver (OUTBOARD_DEVICE=opencl or
// cuda), which reserves more address space than an executor otherwise may.
bool NeedsDriver();

// In one line, what the executors and compile processes of this machine lack, and why; empty if
// they have all walls, or if this is a sanitizer's build.
std::string WhatIsMissing();

// True with OUTBOARD_SANDBOX=0.
bool IsSandboxOff();

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)  // g++'s
inline constexpr bool kIsSanitizersBuild = true;
#else
inline constexpr bool kIsSanitizersBuild = false;
#endif

}  // namespace outboard::worker
