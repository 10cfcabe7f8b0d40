// Cloud.Values: a second stream of a session, for its large values, so that they do not delay
// steps. Frames carry the session's epoch; the client that opens it presents the resume token.
//
// Threads: gRPC's, and any thread that sends.
#pragma once

#include <grpcpp/server_context.h>

#include <utility>

#include "base/work_queue.h"
#include "gateway/data_path/core_driver.h"
#include "gateway/streams/stream.h"
#include "gateway/server/authenticator.h"
#include "proto/cloud.pb.h"

namespace outboard::gateway {

class ValuesSender final
    : public SendingStream<grpc::ServerWriteReactor<proto::ServerFrame>, proto::ServerFrame>,
      public ValuesEndpoint {
 public:
  // Ends with NOT_FOUND unless id and token match a session of the caller's tenant.
  ValuesSender(CoreDriver* driver, Authenticator* gatekeeper, WorkQueue* pool,
               const grpc::CallbackServerContext& context, const proto::ValuesRequest& request);

  void Send(proto::ServerFrame frame) override { SendingStream::Send(std::move(frame)); }
  void End(absl::Status why) override { SendingStream::End(std::move(why)); }
  bool AskDrained() override { return SendingStream::AskDrained(); }

 private:
  void OnDrained() override;
  void OnGone() override;

  CoreDriver* const driver_;
  SessionId session_;
};

}  // namespace outboard::gateway
