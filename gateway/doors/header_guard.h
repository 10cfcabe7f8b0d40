// Bounds the block of headers that gRPC takes of a peer, with a key or without.
//
// gRPC 1.51 holds each frame of a block to a limit, and the block to none: a peer that sends
// CONTINUATION frames without an end makes it keep up to 180 bytes for each that came. It offers no
// setting for that, and behind TLS nobody but gRPC sees frames. Two of its functions are therefore
// replaced (header_guard.cc): a block that is longer than the limits of gateway/base/limits.h ends
// its connection. gRPC from 1.57 on bounds blocks itself; this file goes when that is used.
//
// It holds for every connection of a process that links this file, also those it makes itself.
// Threads: any.
#pragma once

#include <cstdint>

namespace outboard::gateway {

// True if the gRPC of this process calls the guard. False where gRPC is another version, or where
// the guard is in a library that was loaded after gRPC.
bool IsHeaderGuardInPlace();

// Blocks that were too long, since the process began.
uint64_t LongHeaderBlocks();

}  // namespace outboard::gateway
