#include "gateway/server/authenticator.h"

#include <openssl/crypto.h>

#include "base/check.h"
#include "gateway/base/clock.h"

namespace outboard::gateway {

Authenticator::Authenticator(Accounts* accounts, std::optional<TenantId> everybody,
                             std::string fleet_secret)
    : accounts_(accounts), everybody_(everybody), fleet_secret_(std::move(fleet_secret)) {
  OB_CHECK(!fleet_secret_.empty());
}

absl::StatusOr<Identity> Authenticator::Client(const std::string& bearer) {
  if (everybody_.has_value()) return Identity{*everybody_, ""};
  if (bearer.empty()) {
    return absl::UnauthenticatedError(
        "this gateway asks for a key: set CLOUD_KEY (made by `outboard key create`)");
  }
  return accounts_->Authenticate(bearer, WallNow());
}

absl::Status Authenticator::Check(const std::string& key_id) {
  if (everybody_.has_value()) return absl::OkStatus();
  return accounts_->CheckKey(key_id, WallNow());
}

absl::Status Authenticator::Worker(const grpc::CallbackServerContext& context) const {
  return Worker(Bearer(context));
}

absl::Status Authenticator::Worker(std::string_view secret) const {
  if (secret.size() == fleet_secret_.size() &&
      CRYPTO_memcmp(secret.data(), fleet_secret_.data(), secret.size()) == 0)
    return absl::OkStatus();
  return absl::UnauthenticatedError(
      secret.empty() ? "a worker needs the fleet secret of its gateway (docs/fleet.md)"
                     : "wrong fleet secret (docs/fleet.md)");
}

std::string Authenticator::Bearer(const grpc::CallbackServerContext& context) {
  auto it = context.client_metadata().find("authorization");
  if (it == context.client_metadata().end()) return "";
  std::string_view value(it->second.data(), it->second.size());
  constexpr std::string_view kScheme = "Bearer ";
  return value.starts_with(kScheme) ? std::string(value.substr(kScheme.size())) : "";
}

}  // namespace outboard::gateway
