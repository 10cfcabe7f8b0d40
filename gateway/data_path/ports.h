// Ports: the inbound side of a connection. A port passes messages from one connection to the driver
// and the session's relay; an endpoint (endpoints.h) is the outbound side. An adapter owns its port
// and contains no protocol logic, so streams, sockets and simulated connections behave the same.
//
// Calls on one port come one at a time, except OnWritable, which may come at any time.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gateway/core/events.h"
#include "gateway/data_path/endpoints.h"
#include "gateway/data_path/host.h"

namespace outboard::proto {
class Measured;
class Register;
class WorkerEvent;
}  // namespace outboard::proto

namespace outboard::gateway {

struct Admitted;
struct Identity;
class CoreDriver;
class Relay;

// A client's stream: the first frame opens or resumes a session, a Close ends it, all other frames
// go to the relay. Frames that must be verified, hashed or looked up are handled on another thread.
class ClientPort {
 public:
  ClientPort(CoreDriver* driver, DriverHost* host, ClientAuth* auth, ClientEndpoint* endpoint,
             Credentials credentials);
  ~ClientPort();

  // Called first, once: looks at the key. The first frame is read when it is good, which
  // ClientEndpoint::ResumeReading tells; otherwise the stream ends, and nothing of it was read.
  void Begin();
  // Returns false to pause: pass no further frame until ClientEndpoint::ResumeReading.
  bool OnFrame(proto::ClientFrame frame);
  void OnBadFrame(const absl::Status& why);  // it could not be read; no other follows
  void OnReadEnd();                          // the client half-closed, or the stream broke
  void OnWritable();
  void OnGone();  // the endpoint is not used after this returns

  // Called by the driver, under its lock, before the executor gets Open.
  void SetRelay(std::shared_ptr<Relay> relay);
  // Called by the driver, under its lock: the session gave its device back, and the next work that
  // its client sends is to be told of (CoreDriver::ClientActs); false: it has one again.
  void SetSleeping(bool sleeping) { sleeping_ = sleeping; }
  ClientEndpoint& endpoint() { return *endpoint_; }
  const std::string& request_id() const { return credentials_.request_id; }
  // Of the client, once its key is known to be good; value 0: not yet.
  TenantId tenant() const { return {tenant_}; }

 private:
  absl::StatusOr<bool> Take(proto::ClientFrame frame);  // as OnFrame; an error ends the session
  bool Open(proto::ClientFrame frame);
  bool Pass(proto::ClientFrame frame);  // false: to pause
  void Fail(const absl::Status& why);
  void FailOf(const Relay* relay, const absl::Status& why);
  void Refuse(const absl::Status& why);  // before there is a session
  std::shared_ptr<Relay> relay();

  CoreDriver* const driver_;
  DriverHost* const host_;
  ClientAuth* const auth_;
  ClientEndpoint* const endpoint_;
  const Credentials credentials_;
  const ConnId conn_;
  std::unique_ptr<const Admitted> admitted_;  // set before the first frame
  bool opened_ = false;                       // the first frame was read
  std::atomic<int64_t> tenant_{0};            // of admitted_, for any thread
  std::atomic<bool> sleeping_{false};
  std::mutex mutex_;
  std::shared_ptr<Relay> relay_;
};

// An executor's stream, from Attach to Leave.
class ExecutorPort {
 public:
  ExecutorPort(CoreDriver* driver, ExecutorEndpoint* endpoint)
      : driver_(driver), endpoint_(endpoint) {}

  // Called first, once. On an error no other call follows.
  // Errors: PERMISSION_DENIED  no session waits for an executor with this token and rank
  absl::Status Attach(SessionId session, Token token, uint32_t rank = 0);
  // Returns false to pause: pass no further frame until ExecutorEndpoint::ResumeReading.
  bool OnFrame(proto::ServerFrame frame);
  void OnWritable();
  void Leave();  // its stream has ended; a second call does nothing

 private:
  CoreDriver* const driver_;
  ExecutorEndpoint* const endpoint_;
  SessionId session_;
  uint32_t rank_ = 0;
  std::shared_ptr<Relay> relay_;
  std::atomic<bool> left_{true};  // or not attached
};

// A worker's control stream, which begins with Register.
class WorkerPort {
 public:
  // `proved_name`: what its certificate says, by which it is known again, whatever it says itself;
  // empty: it is known by the identity that it shows.
  WorkerPort(CoreDriver* driver, WorkerEndpoint* endpoint, std::string proved_name = "")
      : driver_(driver), endpoint_(endpoint), proved_name_(std::move(proved_name)) {}
  ~WorkerPort();

  // Before any event: it is a machine of this account's own.
  void SetOwner(const Identity& owner);
  // Before any event: it is a node, which joins once its devices have passed its join test.
  // `tested` hears how that ended; it must not wait.
  void SetNode(const std::string& serial, std::function<void(const absl::Status&)> tested);
  void OnEvent(const proto::WorkerEvent& event);
  void OnGone();  // the endpoint is not used after this returns; a second call does nothing

 private:
  void Take(const proto::WorkerEvent& event);
  void Join(proto::Register reg);
  void OnMeasured(const proto::Measured& measured);
  void Refuse(const std::string& name, const absl::Status& why);

  CoreDriver* const driver_;
  WorkerEndpoint* const endpoint_;
  const std::string proved_name_;
  std::unique_ptr<proto::Register> measured_;  // that waits for a measurement
  bool measures_rates_ = false;                // it was asked for rates, too
  std::unique_ptr<const Identity> owner_;      // null: it is rented out
  struct Node {
    std::string serial;
    std::function<void(const absl::Status&)> tested;
  };
  std::unique_ptr<const Node> node_;           // null: it is none
  WorkerId worker_;  // value 0: not registered
};

}  // namespace outboard::gateway
