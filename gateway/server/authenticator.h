// Authenticates callers: clients by API key, workers by fleet token. A client's method says which
// scope its key needs (docs/keys.md). Threads: any; Client and Check read the disk.
#pragma once

#include <grpcpp/server_context.h>

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gateway/accounts/accounts.h"
#include "gateway/data_path/host.h"

namespace outboard::gateway {

class KeyUses;

class Authenticator final : public ClientAuth {
 public:
  // `everybody`: if set, keys are not checked and all clients are this tenant.
  // `listens_locally`: only this machine can connect.
  // `uses`: told of keys that are used; may be null.
  Authenticator(Accounts* accounts, KeyUses* uses, std::optional<TenantId> everybody,
                std::string fleet_token, bool listens_locally);

  // Errors: UNAUTHENTICATED    no key; or it is wrong, revoked, expired, or not for this peer
  //         PERMISSION_DENIED  it has none of the scopes, or its account is suspended
  absl::StatusOr<Identity> Client(const Credentials& credentials, Scopes any_of);
  absl::StatusOr<Identity> Client(const Credentials& credentials) override {
    return Client(credentials, KeyScope::kRun);
  }
  // OK while the key stands. The same errors.
  absl::Status Check(const std::string& key_id) override;
  // UNAUTHENTICATED: a wrong token, or, where there is none, a peer that is not of this machine.
  absl::Status Worker(const grpc::CallbackServerContext& context) const;

  // As Worker for a peer that is known to be on this machine.
  absl::Status LocalWorker(const std::string& token) const;

  // Returns the value of `authorization: Bearer`, "" if there is none, and the caller's address.
  static Credentials CredentialsOf(const grpc::CallbackServerContext& context);

 private:
  Accounts* const accounts_;
  KeyUses* const uses_;
  const std::optional<TenantId> everybody_;
  const std::string fleet_token_;
  const bool listens_locally_;
};

bool IsLocalPeer(std::string_view peer);

}  // namespace outboard::gateway
