#include "gateway/server/authenticator.h"

#include <openssl/crypto.h>

#include "base/check.h"
#include "gateway/base/clock.h"
#include "gateway/server/key_uses.h"
#include "telemetry/counters.h"

namespace outboard::gateway {

namespace {

using telemetry::CountRefused;
using telemetry::Refusal;

std::string Bearer(const grpc::CallbackServerContext& context) {
  auto it = context.client_metadata().find("authorization");
  if (it == context.client_metadata().end()) return "";
  std::string_view value(it->second.data(), it->second.size());
  constexpr std::string_view kScheme = "Bearer ";
  return value.starts_with(kScheme) ? std::string(value.substr(kScheme.size())) : "";
}

}  // namespace

Authenticator::Authenticator(Accounts* accounts, KeyUses* uses, std::optional<TenantId> everybody,
                             std::string fleet_secret, TrustedProxy proxy)
    : accounts_(accounts),
      uses_(uses),
      everybody_(everybody),
      fleet_secret_(std::move(fleet_secret)),
      proxy_(std::move(proxy)) {
  OB_CHECK(!fleet_secret_.empty());
}

absl::StatusOr<Identity> Authenticator::Client(const Credentials& credentials, Scopes any_of) {
  if (everybody_.has_value()) return Identity{*everybody_, "", {.scopes = Scopes::All()}};
  if (credentials.key.empty()) {
    CountRefused(Refusal::kNoKey);
    return absl::UnauthenticatedError(
        "this gateway asks for a key: set CLOUD_KEY (made by `outboard key create`)");
  }
  auto peer = PeerOf(credentials);
  if (!peer.ok()) return peer.status();
  const WallTime now = WallNow();
  auto identity = accounts_->Authenticate(credentials.key, now);
  if (!identity.ok()) {
    CountRefused(absl::IsPermissionDenied(identity.status()) ? Refusal::kScope : Refusal::kKey);
    return identity;
  }
  const KeyRights& rights = identity->rights;
  if (!rights.from.empty() && !AnyContains(rights.from, AddressesOfPeer(*peer))) {
    CountRefused(Refusal::kKeyAddress);
    return absl::UnauthenticatedError(
        "the API key is not valid from this address: use it where `outboard key ls` says, or "
        "make "
        "one for here (`outboard key create --from`)");
  }
  if (absl::Status status = CheckScope(rights.scopes, any_of); !status.ok()) {
    CountRefused(Refusal::kScope);
    return status;
  }
  if (uses_ != nullptr) uses_->Note(identity->key_id, now);
  return identity;
}

absl::Status Authenticator::Check(const std::string& key_id) {
  if (everybody_.has_value()) return absl::OkStatus();
  const WallTime now = WallNow();
  absl::Status status = accounts_->CheckKey(key_id, now);
  if (status.ok() && uses_ != nullptr) uses_->Note(key_id, now);
  return status;
}

absl::Status Authenticator::Worker(std::string_view secret) const {
  if (secret.size() == fleet_secret_.size() &&
      CRYPTO_memcmp(secret.data(), fleet_secret_.data(), secret.size()) == 0)
    return absl::OkStatus();
  CountRefused(Refusal::kFleetSecret);
  return absl::UnauthenticatedError(
      secret.empty() ? "a worker needs the fleet secret of its gateway (docs/fleet.md)"
                     : "wrong fleet secret (docs/fleet.md)");
}

Credentials Authenticator::CredentialsOf(const grpc::CallbackServerContext& context) {
  const ProxyWord word = ProxyWord::Of(context);
  return {.key = Bearer(context),
          .peer = context.peer(),
          .proxy_secret = word.secret,
          .proxy_address = word.address,
          .has_hung_up = [&context] { return context.IsCancelled(); }};
}

absl::StatusOr<std::string> Authenticator::PeerOf(const Credentials& credentials) const {
  return proxy_.PeerOf(credentials.peer, {credentials.proxy_secret, credentials.proxy_address});
}

}  // namespace outboard::gateway
