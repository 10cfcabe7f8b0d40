// An account that keeps the rules while another breaks them: a session with state on its device,
// kept open through all cases, and a fresh one after each. Its values are computed before the first
// case, on the host, and compared to the last bit.
//
// It comes by TCP, as from another machine: the unix socket beside the port would hide what happens
// to the port (client/session/link/local_socket.h).
// Threads: one at a time; what the sessions tell comes from any.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/session/session.h"
#include "tests/net/fault_proxy.h"

namespace outboard::test {

class HonestAccount {
 public:
  HonestAccount(const std::string& target, std::string key);

  // Opens the session whose state all steps change.
  absl::Status Begin();
  // One step: state on the device, f' = f / 2 + x and n' = 3 n + m (which wraps), both read back.
  // DATA_LOSS: a wrong bit. ABORTED: the session had to connect again, or had something to tell.
  absl::Status Step();
  // Opens another session, does one step, and closes it.
  absl::Status FreshStep();
  absl::Status End();

  int steps() const { return steps_; }
  const std::string& key() const { return key_; }

 private:
  static constexpr int kElements = 256;
  static constexpr int kStepsMax = 1000;
  struct State {
    std::vector<float> f;
    std::vector<int32_t> n;
  };
  session::SessionOptions Options();

  FaultProxy proxy_;  // without faults
  const std::string key_;
  std::vector<State> expected_;  // [k]: after k steps; [0] is what is put
  std::vector<float> x_;
  std::vector<int32_t> m_;
  session::RunRequest request_;  // of every step, but for the handles of the state
  uint64_t f_ = 0, n_ = 0;       // handles of the state
  int steps_ = 0;
  std::mutex mutex_;
  std::string told_;
  std::unique_ptr<Session> session_;  // last: it tells
};

}  // namespace outboard::test
