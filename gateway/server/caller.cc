#include "gateway/server/caller.h"

#include <cstdint>
#include <string_view>

#include "absl/strings/numbers.h"

namespace outboard::gateway {

namespace {

std::optional<SessionId> HexIn(const grpc::CallbackServerContext& context, const char* name) {
  auto it = context.client_metadata().find(name);
  if (it == context.client_metadata().end()) return std::nullopt;
  return SessionId::FromHex(std::string_view(it->second.data(), it->second.size()));
}

// One that is not there is 0; what is no number is nobody's rank.
uint32_t RankIn(const grpc::CallbackServerContext& context) {
  const auto it = context.client_metadata().find("outboard-rank");
  if (it == context.client_metadata().end()) return 0;
  uint32_t rank = 0;
  const absl::string_view text(it->second.data(), it->second.size());
  return absl::SimpleAtoi(text, &rank) ? rank : UINT32_MAX;
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
    caller.rank = RankIn(context);
  }
  return caller;
}

}  // namespace outboard::gateway
