// The gRPC streams of a gateway as endpoints (Cloud.Session, .Values, Fleet.Attach, .Join): each
// writes the messages it is given, and passes the messages it reads to its port.
// Errors: a stream ends with the status that the driver gave it, and with INVALID_ARGUMENT after a
// malformed first message.
#pragma once

#include <grpcpp/server_context.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "gateway/data_path/admitted.h"
#include "gateway/data_path/core_driver.h"
#include "gateway/data_path/endpoints.h"
#include "gateway/data_path/ports.h"
#include "gateway/observe/call_record.h"
#include "gateway/server/authenticator.h"
#include "gateway/streams/stream.h"
#include "proto/cloud.pb.h"
#include "proto/fleet.pb.h"

namespace outboard::gateway {

class FleetDoor;
class KeyDoor;
struct Caller;

// Cloud.Session. Nothing is read before the key is known to be good, and no frame is parsed before
// its items are counted (wire/frame_scan.h).
class ClientStream final : public Stream<grpc::ByteBuffer, proto::ServerFrame,
                                         wire::FrameQueue<proto::ServerFrame>, grpc::ByteBuffer>,
                           public ClientEndpoint {
 public:
  ClientStream(CoreDriver* driver, DriverHost* host, ClientAuth* auth, StallWatch* readers,
               grpc::CallbackServerContext& context);

  void Send(proto::ServerFrame frame) override { Stream::Send(std::move(frame)); }
  void End(absl::Status why) override { Stream::End(std::move(why)); }
  void SendLast(proto::ServerFrame frame, absl::Status why) override {
    Stream::SendLast(std::move(frame), std::move(why));
  }
  bool AskWritable() override { return Stream::AskWritable(); }
  void ResumeReading() override { Stream::ResumeReading(); }
  bool Hold() override { return Stream::Hold(); }
  void Unhold() override { Stream::Unhold(); }

 private:
  bool OnMessage(grpc::ByteBuffer bytes) override;
  void OnReadEnd() override { port_.OnReadEnd(); }
  void OnWritable() override { port_.OnWritable(); }
  void OnQueued(size_t bytes) override;
  void OnFinish(const absl::Status& status) override;
  void OnGone() override { port_.OnGone(); }

  bool is_first_ = true;  // the frame that is read next
  CallRecord record_;
  ClientPort port_;
};

// Fleet.Attach.
class ExecutorStream final : public Stream<proto::ServerFrame, proto::ClientFrame>,
                             public ExecutorEndpoint {
 public:
  // `door`: null for a caller that was let in already. `held`: while the stream lives.
  ExecutorStream(CoreDriver* driver, FleetDoor* door, grpc::CallbackServerContext& context,
                 std::shared_ptr<void> held = nullptr);
  // Of a machine of an account's own, which shows that account's key.
  ExecutorStream(CoreDriver* driver, KeyDoor* door, grpc::CallbackServerContext& context);

  void Send(proto::ClientFrame frame) override { Stream::Send(std::move(frame)); }
  void End(absl::Status why) override { Stream::End(std::move(why)); }
  bool AskWritable() override { return Stream::AskWritable(); }
  void ResumeReading() override { Stream::ResumeReading(); }

 private:
  bool OnMessage(proto::ServerFrame frame) override { return port_.OnFrame(std::move(frame)); }
  void OnReadEnd() override;
  void OnWritable() override { port_.OnWritable(); }
  void OnFinish(const absl::Status& status) override { record_.End(status); }
  void OnGone() override { port_.Leave(); }

  void AttachAs(const Caller& caller);

  std::shared_ptr<const void> held_;
  CallRecord record_;
  ExecutorPort port_;
};

// Fleet.Join.
class ControlStream final
    : public Stream<proto::WorkerEvent, proto::GatewayCommand, PlainQueue<proto::GatewayCommand>>,
      public WorkerEndpoint {
 public:
  // `door`, `held`: as in ExecutorStream. `proved_name`: as in WorkerPort. `node`, `tested`: as in
  // WorkerPort::SetNode.
  ControlStream(CoreDriver* driver, FleetDoor* door, grpc::CallbackServerContext& context,
                std::shared_ptr<void> held = nullptr, std::string proved_name = "",
                const std::string& node = "",
                std::function<void(const absl::Status&)> tested = nullptr);
  // As of ExecutorStream.
  ControlStream(CoreDriver* driver, KeyDoor* door, grpc::CallbackServerContext& context);

  void Send(proto::GatewayCommand command) override { Stream::Send(std::move(command)); }
  void End(absl::Status why) override { Stream::End(std::move(why)); }
  std::string address() const override { return address_; }

 private:
  bool OnMessage(proto::WorkerEvent event) override;
  void OnReadEnd() override;
  void OnFinish(const absl::Status& status) override { record_.End(status); }
  void OnGone() override { port_.OnGone(); }

  std::shared_ptr<const void> held_;
  const std::string address_;
  CallRecord record_;
  WorkerPort port_;
};

// Cloud.Values: a second stream of a session, for its large values, so that they do not delay
// steps. Frames carry the session's epoch; the client that opens it presents the resume token.
//
// Threads: gRPC's, and any thread that sends.
class ValuesSender final : public Stream<proto::ValuesRequest, proto::ServerFrame>,
                           public ValuesEndpoint {
 public:
  // Its key is looked at before the request is read. Ends with NOT_FOUND unless the id and the
  // token of the request match a session of the caller's account.
  ValuesSender(CoreDriver* driver, ClientAuth* auth, StallWatch* readers,
               grpc::CallbackServerContext& context);

  void Send(proto::ServerFrame frame) override { SendingStream::Send(std::move(frame)); }
  void End(absl::Status why) override { SendingStream::End(std::move(why)); }
  bool AskWritable() override { return SendingStream::AskWritable(); }

 private:
  bool OnMessage(proto::ValuesRequest request) override;
  void OnReadEnd() override;
  void OnWritable() override;
  void OnQueued(size_t bytes) override;
  void OnFinish(const absl::Status& status) override { record_.End(status); }
  void OnGone() override;

  CallRecord record_;
  CoreDriver* const driver_;
  const std::unique_ptr<StallWatch::Watched> request_comes_;
  SessionId session_;
  Admitted admitted_;
};

}  // namespace outboard::gateway
