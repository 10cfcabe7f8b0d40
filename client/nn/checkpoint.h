// Checkpoints in the cloud: a state dict under a name, written and read there. No bytes of it pass
// through the program, in this session or in the next.
//
//   outboard::save("mnist/best", nn::state_dict(model));
//   ...                                                       // another day, another session
//   nn::load_state_dict(nn::state_dict(model), outboard::load("mnist/best"));
//
// Values are saved as they are at the call, though what follows does not wait; an existing name is
// replaced at once, when all of the new one is on disk. `outboard store ls` lists names, `outboard
// pull NAME` brings one as a safetensors file. Names: 1 to 255 letters, digits and "._-/".
//
// Errors, thrown as Error: NOT_FOUND            no such name
//                          INVALID_ARGUMENT     a name that cannot be, an empty tensor, an entry
//                                               twice; a name that holds a file and no arrays
//                          FAILED_PRECONDITION  the name is pinned; tensors of another session
//                          RESOURCE_EXHAUSTED   the quota; UNAVAILABLE, and what the values failed
//                                               with
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "client/nn/state.h"
#include "client/tensor/tensor.h"

namespace outboard {

// What a save came to, in bytes.
struct SavedBytes {
  uint64_t total = 0;
  uint64_t sent = 0;  // from worker to gateway, with their list: the rest was stored already
};

// A save under way. Dropping it changes nothing: the save goes on.
class SaveFuture {
 public:
  // Until it is on disk; once.
  SavedBytes wait(At at = At::current());

 private:
  friend SaveFuture save_later(const std::string&, const nn::StateDict&, At);
  std::shared_ptr<Session> session_;
  uint64_t seq_ = 0;
};

SaveFuture save_later(const std::string& name, const nn::StateDict& state, At at = At::current());
// Waits until it is on disk.
SavedBytes save(const std::string& name, const nn::StateDict& state, At at = At::current());

// In the order of the names, realised: their values are where the session computes.
nn::StateDict load(const std::string& name, At at = At::current());

}  // namespace outboard
