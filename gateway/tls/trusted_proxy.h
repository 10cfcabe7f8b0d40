// Whose word counts for the address of a caller: a proxy before the gateway (deploy/nginx) names it
// in a header, and shows in another a secret that it shares with the gateway. Nobody else knows the
// secret, so nobody else can choose an address.
// Threads: any.
#pragma once

#include <grpcpp/server_context.h>

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace outboard::gateway {

inline constexpr char kProxySecretHeader[] = "outboard-proxy-secret";
inline constexpr char kProxyAddressHeader[] = "outboard-client-address";

// What a call says about where it comes from; "" where it says nothing.
struct ProxyWord {
  std::string secret, address;
  static ProxyWord Of(const grpc::CallbackServerContext& context);
};

class TrustedProxy {
 public:
  TrustedProxy() = default;  // none: what calls say is not read
  explicit TrustedProxy(std::string secret) : secret_(std::move(secret)) {}

  // The peer of a call, as gRPC writes it ("ipv4:10.0.0.1:0"): what the proxy says, or `peer` where
  // the call did not come through it.
  // Errors: UNAUTHENTICATED  the call shows another secret, or no address with the right one
  absl::StatusOr<std::string> PeerOf(const std::string& peer, const ProxyWord& word) const;

 private:
  std::string secret_;
};

}  // namespace outboard::gateway
