#include "gateway/server/caller.h"

#include <string_view>

namespace outboard::gateway {

namespace {

std::optional<SessionId> HexIn(const grpc::CallbackServerContext& context, const char* name) {
  auto it = context.client_metadata().find(name);
  if (it == context.client_metadata().end()) return std::nullopt;
  return SessionId::FromHex(std::string_view(it->second.data(), it->second.size()));
}

}  // namespace

Caller Caller::Of(const grpc::CallbackServerContext& context) {
  Caller caller;
  caller.credentials = Authenticator::CredentialsOf(context);
  const std::optional<SessionId> session = HexIn(context, "outboard-session");
  const std::optional<SessionId> token = HexIn(context, "outboard-token");
  if (session.has_value() && token.has_value()) {
    caller.session = session;
    caller.token = {token->hi, token->lo};
  }
  return caller;
}

}  // namespace outboard::gateway
