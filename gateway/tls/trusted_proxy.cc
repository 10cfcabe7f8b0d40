#include "gateway/tls/trusted_proxy.h"

#include <arpa/inet.h>
#include <openssl/crypto.h>

#include "absl/strings/str_cat.h"

namespace outboard::gateway {
namespace {

constexpr size_t kHeaderBytesMax = 256;

std::string HeaderOf(const grpc::CallbackServerContext& context, const char* name) {
  const auto found = context.client_metadata().find(name);
  if (found == context.client_metadata().end() || found->second.size() > kHeaderBytesMax) return "";
  return {found->second.data(), found->second.size()};
}

}  // namespace

ProxyWord ProxyWord::Of(const grpc::CallbackServerContext& context) {
  return {HeaderOf(context, kProxySecretHeader), HeaderOf(context, kProxyAddressHeader)};
}

absl::StatusOr<std::string> TrustedProxy::PeerOf(const std::string& peer,
                                                 const ProxyWord& word) const {
  if (secret_.empty() || word.secret.empty()) return peer;
  if (word.secret.size() != secret_.size() ||
      CRYPTO_memcmp(word.secret.data(), secret_.data(), secret_.size()) != 0)
    return absl::UnauthenticatedError(
        "the proxy before the gateway has another secret than --proxy-secret-file (docs/tls.md)");
  in6_addr address;
  if (inet_pton(AF_INET, word.address.c_str(), &address) == 1)
    return absl::StrCat("ipv4:", word.address, ":0");
  if (inet_pton(AF_INET6, word.address.c_str(), &address) == 1)
    return absl::StrCat("ipv6:[", word.address, "]:0");
  // A client of a unix socket before the proxy, or a proxy that forgets the header: nobody knows
  // where it is, so a key for some addresses is not good there.
  return absl::UnauthenticatedError(
      "the proxy before the gateway does not say whom it speaks for (docs/tls.md)");
}

}  // namespace outboard::gateway
