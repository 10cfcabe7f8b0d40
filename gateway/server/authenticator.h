// Authenticates callers: clients by API key, workers by the fleet secret. Threads: any; Client and
// Check read the disk.
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
  // `fleet_secret`: not empty.
  Authenticator(Accounts* accounts, std::optional<TenantId> everybody, std::string fleet_secret);

  // Reads the disk. UNAUTHENTICATED.
  absl::StatusOr<Identity> Client(const std::string& bearer) override;
  // OK while the key stands.
  absl::Status Check(const std::string& key_id) override;
  // UNAUTHENTICATED: without the fleet secret, or with a wrong one.
  absl::Status Worker(const grpc::CallbackServerContext& context) const;
  absl::Status Worker(std::string_view secret) const;

  // Returns the value of `authorization: Bearer`; "" if there is none.
  static std::string Bearer(const grpc::CallbackServerContext& context);

 private:
  Accounts* const accounts_;
  const std::optional<TenantId> everybody_;
  const std::string fleet_secret_;
};

}  // namespace outboard::gateway
