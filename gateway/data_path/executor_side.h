// What the relay needs of the way to a session's executor, whichever it is: a gRPC stream from afar
// (streams.h) or a socket on this machine (local_attach.h).
#pragma once

#include <cstddef>

#include "absl/status/status.h"
#include "proto/cloud.pb.h"

namespace outboard::gateway {

// Threads: any that knows it to be alive, which the relay's lock sees to.
class ExecutorSide {
 public:
  virtual ~ExecutorSide() = default;
  virtual void Send(proto::ClientFrame frame) = 0;
  virtual void End(absl::Status why) = 0;  // after what was sent
  // Whether more waits to be sent than should; then Relay::ExecutorDrained follows.
  virtual bool AskDrained() = 0;
  virtual void ResumeReading() = 0;  // after Relay::FromExecutor asked for a pause
};

}  // namespace outboard::gateway
