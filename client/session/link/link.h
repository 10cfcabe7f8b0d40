// What carries a session's frames: a gRPC stream to a gateway, or a call into an executor core of
// this process.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "proto/cloud.pb.h"

namespace outboard::transport {

// Receives what arrives. Called from any one thread at a time, never from within Send.
class LinkListener {
 public:
  virtual ~LinkListener() = default;
  virtual void OnFrame(proto::ServerFrame frame) = 0;
  // The last call: OK after an orderly Close, else why the link ended.
  virtual void OnEnd(absl::Status status) = 0;
};

class Link {
 public:
  virtual ~Link() = default;  // no call to the listener after it
  // Before the first Send. The listener outlives the link.
  virtual void Start(LinkListener* listener) = 0;
  // Queues the frame and returns; frames arrive in order or the link ends. Any thread.
  virtual void Send(proto::ClientFrame frame) = 0;
  // No more Sends follow; the other side is asked to end.
  virtual void Finish() = 0;
  virtual uint64_t bytes_up() const = 0;  // as on the wire
  virtual uint64_t bytes_down() const = 0;
};

}  // namespace outboard::transport
