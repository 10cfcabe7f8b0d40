// Interfaces to the peers of CoreDriver and the relay: a client, the stream for its large values,
// an executor, a worker. Implemented by gRPC streams (gateway/streams/streams.h), the local socket
// (gateway/streams/local_attach.h) and the simulator's connections (tests/sim/gateway.h).
//
// Threads: any, several at once, under the locks of the driver and of a relay. No method waits, and
// none calls back into the driver, a port (ports.h) or a relay.
// Lifetime: an endpoint lives until OnGone of its port has returned (Leave, for an executor), or
// until CoreDriver::CloseValues has returned.
#pragma once

#include "absl/status/status.h"

namespace outboard::proto {
class ClientFrame;
class ServerFrame;
class GatewayCommand;
}  // namespace outboard::proto

namespace outboard::gateway {

// A client's stream, which carries the session's items.
class ClientEndpoint {
 public:
  virtual ~ClientEndpoint() = default;
  virtual void Send(proto::ServerFrame frame) = 0;
  // Ends the stream after all sent frames. The first status counts: OK, INVALID_ARGUMENT (protocol
  // violation), ABORTED (resumed elsewhere), UNAVAILABLE (the gateway stops) and those of EndClient
  // (events.h).
  virtual void End(absl::Status why) = 0;
  // Send and End as one: a client that hangs up as soon as it has `frame` cannot end the stream
  // between the two, with CANCELLED in place of `why`.
  virtual void SendLast(proto::ServerFrame frame, absl::Status why) = 0;
  // Returns true if too many bytes are queued. Then the caller pauses the peer that produces them,
  // and ClientPort::OnWritable follows once there is room.
  virtual bool AskWritable() = 0;
  virtual void ResumeReading() = 0;  // after ClientPort::OnFrame returned false
  // The endpoint stays alive between Hold and Unhold, even if the connection ends. Hold returns
  // false if the stream is over already.
  virtual bool Hold() = 0;
  virtual void Unhold() = 0;
};

// A client's second stream, on which large values are sent to it.
class ValuesEndpoint {
 public:
  virtual ~ValuesEndpoint() = default;
  virtual void Send(proto::ServerFrame frame) = 0;
  virtual void End(absl::Status why) = 0;
  virtual bool AskWritable() = 0;  // then CoreDriver::ValuesWritable follows
};

// The process on a worker that serves one session.
class ExecutorEndpoint {
 public:
  virtual ~ExecutorEndpoint() = default;
  virtual void Send(proto::ClientFrame frame) = 0;
  virtual void End(absl::Status why) = 0;
  virtual bool AskWritable() = 0;    // then ExecutorPort::OnWritable follows
  virtual void ResumeReading() = 0;  // after ExecutorPort::OnFrame returned false
};

// The control stream of a worker.
class WorkerEndpoint {
 public:
  virtual ~WorkerEndpoint() = default;
  virtual void Send(proto::GatewayCommand command) = 0;
  virtual void End(absl::Status why) = 0;
  // Of the host that its connection comes from, without the port; empty: it has none.
  virtual std::string address() const { return ""; }
};

}  // namespace outboard::gateway
