// What adapters tell: a port takes what comes from one connection to the driver and to the
// session's relay, as an endpoint (endpoints.h) takes what they say to it. An adapter owns its port
// and has no rule of its own, so that streams, sockets and simulated connections all behave the
// same.
//
// A port's calls for one connection come one at a time, but OnDrained, which may come at any time.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "absl/status/status.h"
#include "gateway/core/events.h"
#include "gateway/data_path/endpoints.h"

namespace outboard::proto {
class WorkerEvent;
}  // namespace outboard::proto

namespace outboard::gateway {

class ClientAuth;
class CoreDriver;
class DriverHost;
class Relay;

// A client's stream: the first frame opens or resumes a session, a Close ends it, everything else
// goes to the relay; on another thread where it has to be verified, hashed or looked up.
class ClientPort {
 public:
  ClientPort(CoreDriver* driver, DriverHost* host, ClientAuth* auth, ClientEndpoint* endpoint,
             std::string bearer);

  // False: no further frame until ClientEndpoint::ResumeReading.
  bool OnFrame(proto::ClientFrame frame);
  void OnReadEnd();  // the client half-closed, or the stream broke
  void OnDrained();
  void OnGone();  // nobody uses the endpoint when this has returned

  // For the driver, under its lock, before the executor is told to begin.
  void SetRelay(std::shared_ptr<Relay> relay);
  ClientEndpoint& endpoint() { return *endpoint_; }

 private:
  bool Open(proto::ClientFrame frame);
  std::shared_ptr<Relay> relay();

  CoreDriver* const driver_;
  DriverHost* const host_;
  ClientAuth* const auth_;
  ClientEndpoint* const endpoint_;
  const std::string bearer_;
  const ConnId conn_;
  bool opened_ = false;  // the first frame was read
  std::mutex mutex_;
  std::shared_ptr<Relay> relay_;
};

// An executor's stream, from Attach to Leave.
class ExecutorPort {
 public:
  ExecutorPort(CoreDriver* driver, ExecutorEndpoint* endpoint)
      : driver_(driver), endpoint_(endpoint) {}

  // First, once. PERMISSION_DENIED: no executor with this token is awaited; then there are no more
  // calls.
  absl::Status Attach(SessionId session, Token token);
  // False: no further frame until ExecutorEndpoint::ResumeReading.
  bool OnFrame(proto::ServerFrame frame);
  void OnDrained();
  void Leave();  // its stream has ended; a second call does nothing

 private:
  CoreDriver* const driver_;
  ExecutorEndpoint* const endpoint_;
  SessionId session_;
  std::shared_ptr<Relay> relay_;
  std::atomic<bool> left_{true};  // or not attached
};

// A worker's control stream, which begins with Register.
class WorkerPort {
 public:
  WorkerPort(CoreDriver* driver, WorkerEndpoint* endpoint) : driver_(driver), endpoint_(endpoint) {}

  void OnEvent(const proto::WorkerEvent& event);
  void OnGone();  // nobody uses the endpoint when this has returned; a second call does nothing

 private:
  CoreDriver* const driver_;
  WorkerEndpoint* const endpoint_;
  WorkerId worker_;  // value 0: not registered
};

}  // namespace outboard::gateway
