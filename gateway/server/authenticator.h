// Authenticates callers: clients by API key, workers by fleet token. Threads: any; Client and Check
// read the disk.
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

class Authenticator final : public ClientAuth {
 public:
  // `everybody`: if set, keys are not checked and all clients are this tenant.
  // `listens_locally`: only this machine can connect.
  Authenticator(Accounts* accounts, std::optional<TenantId> everybody, std::string fleet_token,
                bool listens_locally);

  // Reads the disk. UNAUTHENTICATED.
  absl::StatusOr<Identity> Client(const std::string& bearer) override;
  // OK while the key stands.
  absl::Status Check(const std::string& key_id) override;
  // UNAUTHENTICATED: a wrong token, or, where there is none, a peer that is not of this machine.
  absl::Status Worker(const grpc::CallbackServerContext& context) const;

  // As Worker for a peer that is known to be on this machine.
  absl::Status LocalWorker(const std::string& token) const;

  // Returns the value of `authorization: Bearer`; "" if there is none.
  static std::string Bearer(const grpc::CallbackServerContext& context);

 private:
  Accounts* const accounts_;
  const std::optional<TenantId> everybody_;
  const std::string fleet_token_;
  const bool listens_locally_;
};

bool IsLocalPeer(std::string_view peer);

}  // namespace outboard::gateway
