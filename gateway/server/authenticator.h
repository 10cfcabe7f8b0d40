// Authenticates callers: clients by API key, workers by the fleet secret. A client's method says
// which scope its key needs (docs/keys.md). Threads: any; Client and Check read the disk, on
// threads of gateway/doors/key_door.h.
#pragma once

#include <grpcpp/server_context.h>

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gateway/accounts/accounts.h"
#include "gateway/data_path/host.h"
#include "gateway/tls/trusted_proxy.h"

namespace outboard::gateway {

class KeyUses;

class Authenticator {
 public:
  // `accounts`: a connection of its own to the file, which nobody writes through.
  // `everybody`: if set, keys are not checked and all clients are this tenant.
  // `fleet_secret`: not empty. `uses`: told of keys that are used; may be null.
  Authenticator(Accounts* accounts, KeyUses* uses, std::optional<TenantId> everybody,
                std::string fleet_secret, TrustedProxy proxy = {});

  // Errors: UNAUTHENTICATED    no key; or it is wrong, revoked, expired, or not for this peer
  //         PERMISSION_DENIED  it has none of the scopes, or its account is suspended
  absl::StatusOr<Identity> Client(const Credentials& credentials, Scopes any_of);
  // OK while the key stands. The same errors.
  absl::Status Check(const std::string& key_id);
  // UNAUTHENTICATED: without the fleet secret, or with a wrong one.
  absl::Status Worker(std::string_view secret) const;

  // Where the caller is, as gRPC writes it: what the trusted proxy says, else the other end of the
  // connection. Limits of addresses count by it.
  // Errors: UNAUTHENTICATED  somebody claims to be that proxy
  absl::StatusOr<std::string> PeerOf(const Credentials& credentials) const;

  // Returns the value of `authorization: Bearer`, "" if there is none, and the caller's address.
  static Credentials CredentialsOf(const grpc::CallbackServerContext& context);

 private:
  Accounts* const accounts_;
  KeyUses* const uses_;
  const std::optional<TenantId> everybody_;
  const std::string fleet_secret_;
  const TrustedProxy proxy_;
};

}  // namespace outboard::gateway
