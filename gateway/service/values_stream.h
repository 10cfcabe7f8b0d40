// Cloud.Values: the stream for a session's large values, beside that of its steps, so that no step waits
// behind them. Frames carry the session's epoch; whoever opens it shows the resume token.
//
// Threads: gRPC's, and any that sends.
#pragma once

#include <grpcpp/server_context.h>

#include <atomic>

#include "gateway/service/hub.h"
#include "gateway/service/relay.h"
#include "proto/cloud.pb.h"

namespace outboard::gateway {

class ValuesStream final : public ValuesSide {
 public:
  // Ends with NOT_FOUND unless id and token are those of a session of the caller's tenant.
  ValuesStream(Hub* hub, const grpc::CallbackServerContext& context,
               const proto::ValuesRequest& request);

 private:
  void OnDrained() override;
  void OnGone() override;

  Hub* const hub_;
  SessionId session_;
};

}  // namespace outboard::gateway
