// Ranks in processes of one machine, connected by a socket for each pair.
//
// Whoever starts the processes makes the sockets (socketpair(2)) and passes the ends, so a process
// needs neither network nor names: an executor uses this from within its sandbox. A thread of the
// Collective moves bytes while the caller computes, straight out of and into the caller's memory.
//
// What a pair exchanges are frames: a header and the block of one transfer. A header names the
// epoch, the group, the number of the transfer in it and its bytes; a frame of another epoch, or of
// another transfer than this rank has started, ends the group. A rank that aborts sends its reason
// to all; a socket that closes without one tells that its rank's process has ended.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/collective/collective.h"

namespace outboard::collective {

// Makes a socket for each pair of ranks: the result's [r][s] is the end of rank r that leads to
// rank s, and -1 where r is s. The caller owns them all; they are closed on exec.
// Errors: UNAVAILABLE  the system gives no more descriptors: ranks * (ranks - 1) are needed
absl::StatusOr<std::vector<std::vector<int>>> ConnectRanks(int64_t ranks);
// Lets a socket hold more, so that ranks that share a core take fewer turns. Whoever makes a socket
// calls this; one that may hold no more works too.
void WidenSocket(int socket);

// sockets[r] is connected to rank r: a stream socket, owned from now on. At the own rank: an
// eventfd that does not block, or -1 where this process may make one itself.
// Errors: INVALID_ARGUMENT  not one socket for each other rank
//         UNAVAILABLE       the system gives no thread, or no descriptor to wake it by
absl::StatusOr<std::unique_ptr<Collective>> MakeOverSockets(Member member,
                                                            std::vector<int> sockets);

}  // namespace outboard::collective
