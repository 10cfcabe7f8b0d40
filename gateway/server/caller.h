// What a call says about who makes it: a client's key, or the names of a session and of the
// executor that works for it (fleet.proto, Attach). Read while the call is begun; judged on the
// pool.
#pragma once

#include <grpcpp/server_context.h>

#include <optional>
#include <string>

#include "gateway/core/events.h"
#include "gateway/server/authenticator.h"

namespace outboard::gateway {

struct Caller {
  std::string bearer;
  // Both or neither. Whether they belong together is CoreDriver::TenantOf's to say.
  std::optional<SessionId> session;
  Token token;

  static Caller Of(const grpc::CallbackServerContext& context);
};

}  // namespace outboard::gateway
