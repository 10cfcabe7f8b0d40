#include "gateway/server/authenticator.h"

#include <openssl/crypto.h>

#include "gateway/base/clock.h"
#include "gateway/server/key_uses.h"

namespace outboard::gateway {

namespace {

std::string Bearer(const grpc::CallbackServerContext& context) {
  auto it = context.client_metadata().find("authorization");
  if (it == context.client_metadata().end()) return "";
  std::string_view value(it->second.data(), it->second.size());
  constexpr std::string_view kScheme = "Bearer ";
  return value.starts_with(kScheme) ? std::string(value.substr(kScheme.size())) : "";
}

}  // namespace

Authenticator::Authenticator(Accounts* accounts, KeyUses* uses, std::optional<TenantId> everybody,
                             std::string fleet_token, bool listens_locally)
    : accounts_(accounts),
      uses_(uses),
      everybody_(everybody),
      fleet_token_(std::move(fleet_token)),
      listens_locally_(listens_locally) {}

absl::StatusOr<Identity> Authenticator::Client(const Credentials& credentials, Scopes any_of) {
  if (everybody_.has_value()) return Identity{*everybody_, "", {.scopes = Scopes::All()}};
  if (credentials.key.empty()) {
    return absl::UnauthenticatedError(
        "this gateway asks for a key: set CLOUD_KEY (made by `outboard key create`)");
  }
  const WallTime now = WallNow();
  auto identity = accounts_->Authenticate(credentials.key, now);
  if (!identity.ok()) return identity;
  const KeyRights& rights = identity->rights;
  if (!rights.from.empty() && !AnyContains(rights.from, AddressesOfPeer(credentials.peer))) {
    return absl::UnauthenticatedError(
        "the API key is not valid from this address: use it where `outboard key list` says, or "
        "make "
        "one for here (`outboard key create --from`)");
  }
  if (absl::Status status = CheckScope(rights.scopes, any_of); !status.ok()) return status;
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

absl::Status Authenticator::Worker(const grpc::CallbackServerContext& context) const {
  // gRPC gives peers of an in-process channel no name.
  if (fleet_token_.empty() && !listens_locally_ && !IsLocalPeer(context.peer())) {
    return absl::UnauthenticatedError(
        "this gateway has no fleet token, so workers join from its own machine only");
  }
  return LocalWorker(Bearer(context));
}

absl::Status Authenticator::LocalWorker(const std::string& token) const {
  if (fleet_token_.empty() ||
      (token.size() == fleet_token_.size() &&
       CRYPTO_memcmp(token.data(), fleet_token_.data(), token.size()) == 0)) {
    return absl::OkStatus();
  }
  return absl::UnauthenticatedError("wrong fleet token");
}

Credentials Authenticator::CredentialsOf(const grpc::CallbackServerContext& context) {
  return {Bearer(context), context.peer()};
}

bool IsLocalPeer(std::string_view peer) {
  // "fd:" is a peer on the socket for this machine only (abstract_listener.h).
  for (std::string_view local : {"unix:", "fd:", "ipv4:127.", "ipv6:[::1]", "ipv6:%5B::1%5D"}) {
    if (peer.starts_with(local)) return true;
  }
  return false;
}

}  // namespace outboard::gateway
