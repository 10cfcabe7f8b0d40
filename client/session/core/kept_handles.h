// The handles of a session's arrays that have names (Keep in proto/cloud.proto). A handle with a
// name lives on when the program lets go of it: what another client is to find must not end with
// the tensors of this one.
//
// Threads: one owner.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "client/session/request.h"
#include "proto/cloud.pb.h"

namespace outboard::session {

class KeptHandles {
 public:
  // These and no others have names from now on. Returns the handles that end, for the program let
  // go of them and no name keeps them any more.
  std::vector<uint64_t> Set(const std::vector<std::pair<uint64_t, uint64_t>>& handle_by_id);
  bool empty() const { return handle_by_id_.empty(); }
  // The program lets go of the handle. True: it lives on for its name.
  bool Release(uint64_t handle);
  // The program has the handle, as after Keep. False: no name keeps it.
  bool Take(uint64_t handle);
  // To the item of this request: which outputs take names over, and nothing is donated that keeps
  // one. Returns as Set.
  std::vector<uint64_t> OnRun(const RunRequest& request, proto::Run& run);

 private:
  struct Held {
    uint32_t names = 0;
    bool is_released = false;  // by the program
  };
  void Drop(uint64_t handle, std::vector<uint64_t>& ended);

  std::map<uint64_t, uint64_t> handle_by_id_;
  std::map<uint64_t, Held> by_handle_;
};

}  // namespace outboard::session
