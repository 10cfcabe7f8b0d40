// How an executor joins the group of its session: its supervisor passes a socket to each other
// rank, and Begin says who it is among them.
//
// Threads: one, the session's.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "proto/executor.pb.h"
#include "worker/engine/engine.h"

namespace outboard::worker {

class GroupSockets {
 public:
  GroupSockets() = default;
  ~GroupSockets();
  GroupSockets(const GroupSockets&) = delete;
  GroupSockets& operator=(const GroupSockets&) = delete;

  // Takes the descriptor over.
  void Take(const proto::GroupSocket& socket, int fd);
  // Makes `engine` a rank of the group, at the first Begin of a session on several devices; a later
  // one, of a new connection to the gateway, finds it there.
  // Errors: INVALID_ARGUMENT, UNAVAILABLE of collective::MakeOverSockets; those of
  //         WithDeviceTransfers (device_transfers.h)
  absl::Status JoinGroup(const proto::Begin& begin, Engine& engine);

 private:
  std::vector<int> by_rank_;  // -1: none
};

}  // namespace outboard::worker
