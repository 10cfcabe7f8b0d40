// Which parts of the sandbox this machine grants.
#pragma once

#include "worker/sandbox/sandbox_part.h"

namespace outboard::worker {

// The parts that the kernel grants to children of this process, found once by trying, in some
// milliseconds. None with OUTBOARD_SANDBOX=0, for debugging and for comparing speed; none in a
// sanitizer's build, which needs /proc and system calls of its own.
SandboxParts GrantedParts();

// True with OUTBOARD_SANDBOX=0.
bool IsSandboxOff();

inline constexpr bool kIsSanitizersBuild =
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    true;
#else
    false;
#endif

}  // namespace outboard::worker
