// Tells a network that loses everything from a gateway that is only busy, long before the
// connection is given up (grpc_link.cc). While somebody waits and no byte arrives, a second
// connection is tried: a gateway that can be reached answers it at once, however long a step takes.
#pragma once

#include <grpcpp/channel.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "client/session/protection.h"

namespace outboard::session {

// Threads: one at a time. Waits for nothing.
class SilenceWatch {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kSilentAfter{5};

  enum class News { kNone, kSilent, kHeardAgain };

  // A wait begins. `bytes_down`: all that has arrived so far.
  void Begin(Clock::time_point now, uint64_t bytes_down);
  // Call often while the wait lasts. Returns kSilent once when neither byte nor connection has come
  // for kSilentAfter, then kHeardAgain once when one does.
  News Check(const std::string& target, const Protection& protection, Clock::time_point now,
             uint64_t bytes_down);

 private:
  News Heard();

  uint64_t bytes_down_ = 0;
  Clock::time_point probe_at_;  // when to try a second connection; while there is one: when to tell
  std::shared_ptr<grpc::Channel> probe_;
  bool told_ = false;
};

}  // namespace outboard::session
