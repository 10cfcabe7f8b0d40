// Bounds what gRPC 1.51 takes of a peer without a bound, with a key or without: blocks of headers,
// and windows. Neither has a setting that does it, and behind TLS nobody but gRPC sees frames, so
// some of its functions are replaced (grpc_guard.cc).
//
// Headers: gRPC holds each frame of a block to a limit, and the block to none. A peer that sends
// CONTINUATION frames without an end makes it keep up to 180 bytes for each that came. A block that
// is longer than the limits of gateway/base/limits.h ends its connection.
// Windows: gRPC estimates how much is under way by how long a ping takes, and takes what waits in
// this process for that. The estimate is cut at kWindowBytes.
//
// A gRPC of another version is left alone: later ones bound headers themselves. What a maintained
// way would be: docs/decisions/078-steps-before-uploads.md.
// It holds for every connection of a process that links this file, also those it makes itself.
// Threads: any.
#pragma once

#include <cstdint>

namespace outboard::gateway {

// True if the gRPC of this process calls the guard, and is the version that it was written for.
// False, too, where the guard is in a library that was loaded after gRPC.
bool IsGrpcGuardInPlace();

// Blocks that were too long, since the process began.
uint64_t LongHeaderBlocks();

}  // namespace outboard::gateway
