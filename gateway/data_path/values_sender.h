// Cloud.Values: the stream for a session's large values, beside that of its steps, so that no step
// waits behind them. Frames carry the session's epoch; whoever opens it shows the resume token.
//
// Threads: gRPC's, and any that sends.
#pragma once

#include <grpcpp/server_context.h>

#include <atomic>

#include "gateway/data_path/hub.h"
#include "gateway/data_path/relay.h"
#include "proto/cloud.pb.h"

namespace outboard::gateway {

class ValuesSender final : public ValuesSide {
 public:
  // Ends with NOT_FOUND unless id and token are those of a session of the caller's tenant.
  ValuesSender(Hub* hub, const grpc::CallbackServerContext& context,
               const proto::ValuesRequest& request);

 private:
  void OnDrained() override;
  void OnGone() override;

  Hub* const hub_;
  SessionId session_;
};

}  // namespace outboard::gateway
