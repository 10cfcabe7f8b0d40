// Carries a session's frames: over a gRPC stream to a gateway, or, in tests, by calls of an
// executor core in this process.
// Errors: OnEnd is called with UNAVAILABLE where a connection broke, else with what the peer sent.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "proto/cloud.pb.h"

namespace outboard::session {

// Receives frames. Called from one thread at a time, which may vary; never from within Send.
class LinkListener {
 public:
  virtual ~LinkListener() = default;
  virtual void OnFrame(proto::ServerFrame frame) = 0;
  // The last call: OK after an orderly Close, else the error that ended the link.
  virtual void OnEnd(absl::Status status) = 0;
};

class Link {
 public:
  virtual ~Link() = default;  // no call to the listener after it
  // Call before the first Send. The listener must outlive the link.
  virtual void Start(LinkListener* listener) = 0;
  // Queues the frame and returns. Frames arrive in order, or the link ends. Any thread.
  virtual void Send(proto::ClientFrame frame) = 0;
  // Ends sending and asks the other side to end.
  virtual void Finish() = 0;
  virtual uint64_t bytes_up() const = 0;  // as on the wire
  virtual uint64_t bytes_down() const = 0;
};

}  // namespace outboard::session
