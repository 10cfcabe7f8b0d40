// The far ends that CoreDriver and the relay talk to: a client, the stream for its large values, an
// executor, a worker. gRPC streams implement them (gateway/streams/streams.h), the local socket
// (gateway/streams/local_attach.h), and the simulator's connections (tests/sim/gateway.h).
//
// Threads: any, several at once, under the locks of the driver and of a relay. No method waits, and
// none calls back into the driver, a port (ports.h) or a relay.
// Lifetime: an endpoint lives until the port that it was given to has returned from OnGone (Leave,
// for an executor), or until the driver has returned from CloseValues.
#pragma once

#include "absl/status/status.h"

namespace outboard::proto {
class ClientFrame;
class ServerFrame;
class GatewayCommand;
}  // namespace outboard::proto

namespace outboard::gateway {

// The stream of a session's items.
class ClientEndpoint {
 public:
  virtual ~ClientEndpoint() = default;
  virtual void Send(proto::ServerFrame frame) = 0;
  // After what was sent. The first status counts: OK, or why: INVALID_ARGUMENT (a rule was broken),
  // ABORTED (resumed elsewhere), UNAVAILABLE (the gateway stops) and those of EndClient (events.h).
  virtual void End(absl::Status why) = 0;
  // Whether more waits to be sent than should. Then the caller makes the other side pause, and
  // ClientPort::OnDrained follows.
  virtual bool AskDrained() = 0;
  virtual void ResumeReading() = 0;  // after ClientPort::OnFrame returned false
  // Between the two the endpoint stays, whatever becomes of the connection. False: it is over
  // already.
  virtual bool Hold() = 0;
  virtual void Unhold() = 0;
};

// The stream beside it, on which large values leave.
class ValuesEndpoint {
 public:
  virtual ~ValuesEndpoint() = default;
  virtual void Send(proto::ServerFrame frame) = 0;
  virtual void End(absl::Status why) = 0;
  virtual bool AskDrained() = 0;  // then CoreDriver::ValuesDrained follows
};

// The process on a worker that serves one session.
class ExecutorEndpoint {
 public:
  virtual ~ExecutorEndpoint() = default;
  virtual void Send(proto::ClientFrame frame) = 0;
  virtual void End(absl::Status why) = 0;
  virtual bool AskDrained() = 0;     // then ExecutorPort::OnDrained follows
  virtual void ResumeReading() = 0;  // after ExecutorPort::OnFrame returned false
};

// The control stream of a worker.
class WorkerEndpoint {
 public:
  virtual ~WorkerEndpoint() = default;
  virtual void Send(proto::GatewayCommand command) = 0;
  virtual void End(absl::Status why) = 0;
};

}  // namespace outboard::gateway
