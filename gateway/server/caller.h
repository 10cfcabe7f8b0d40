// The credentials in a call's metadata: a client's key, or the ids of a session and of the executor
// that works for it (fleet.proto, Attach). Read when the call begins; checked on the pool.
#pragma once

#include <grpcpp/server_context.h>

#include <optional>
#include <string>

#include "gateway/core/events.h"
#include "gateway/server/authenticator.h"

namespace outboard::gateway {

struct Caller {
  Credentials credentials;
  // Both are set or neither. CoreDriver::TenantOf checks that they belong together.
  std::optional<SessionId> session;
  Token token;
  uint32_t rank = 0;  // of that executor

  static Caller Of(const grpc::CallbackServerContext& context);
};

}  // namespace outboard::gateway
