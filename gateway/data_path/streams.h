// The three kinds of streams that a gateway serves.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "gateway/data_path/hub.h"
#include "gateway/data_path/stream.h"
#include "proto/cloud.pb.h"
#include "proto/fleet.pb.h"

namespace outboard::gateway {

// Cloud.Session.
class ClientStream final : public ClientSide {
 public:
  ClientStream(Hub* hub, const grpc::CallbackServerContext& context);
  // Told by the hub, under its lock, before the executor is told to begin.
  void SetRelay(std::shared_ptr<Relay> relay);

 private:
  bool OnMessage(proto::ClientFrame frame) override;
  void OnReadEnd() override;
  void OnDrained() override;
  void OnGone() override;
  std::shared_ptr<Relay> relay();

  Hub* const hub_;
  const std::string bearer_;
  ConnId conn_;
  bool opened_ = false;  // the first item was read; the reader's own
  std::mutex relay_mutex_;
  std::shared_ptr<Relay> relay_;
};

// Fleet.Attach.
class ExecutorStream final : public Stream<proto::ServerFrame, proto::ClientFrame>,
                             public ExecutorSide {
 public:
  ExecutorStream(Hub* hub, const grpc::CallbackServerContext& context);

  void Send(proto::ClientFrame frame) override { Stream::Send(std::move(frame)); }
  void End(absl::Status why) override { Stream::End(std::move(why)); }
  bool AskDrained() override { return Stream::AskDrained(); }
  void ResumeReading() override { Stream::ResumeReading(); }

 private:
  bool OnMessage(proto::ServerFrame frame) override;
  void OnReadEnd() override;
  void OnDrained() override;
  void OnGone() override;
  void Leave();

  Hub* const hub_;
  SessionId session_;
  std::shared_ptr<Relay> relay_;
  std::atomic<bool> left_{false};
};

// Fleet.Join.
class ControlStream final
    : public Stream<proto::WorkerEvent, proto::GatewayCommand, PlainQueue<proto::GatewayCommand>> {
 public:
  ControlStream(Hub* hub, const grpc::CallbackServerContext& context, const CoreOptions& options);

 private:
  bool OnMessage(proto::WorkerEvent event) override;
  void OnReadEnd() override;
  void OnGone() override;
  bool Refuse(absl::Status why);

  Hub* const hub_;
  const CoreOptions options_;
  WorkerId worker_;
};

}  // namespace outboard::gateway
