// A private CA: one self-signed certificate and its key, and what they issue.
// Threads: any; reads the clock and the system's randomness.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "wire/tls/certificate.h"
#include "wire/tls/limits.h"

namespace outboard::tls {

// What a certificate is good for. One of a worker does not make a server: whoever pins the CA would
// else take any worker for its gateway.
enum class Purpose { kServer, kWorker };

struct IssueOptions {
  std::string common_name;
  std::vector<std::string> names = {};  // DNS names, "*.example.org", and addresses
  Purpose purpose = Purpose::kServer;
  int64_t lifetime_s = kServerLifetimeS;  // ends with the CA's own at the latest
};

// A name of a certificate: a DNS name or an address, IPv6 without brackets.
// Errors: INVALID_ARGUMENT
absl::Status CheckCertificateName(std::string_view name);

// A request for a certificate (PKCS#10, DER) for `key`; the issuer decides what is in it.
absl::StatusOr<std::string> MakeRequest(const PrivateKey& key);

// The id of its key (Certificate::key_id), which whoever sends it has proved to hold; nothing is
// signed.
// Errors: INVALID_ARGUMENT  no request, or a key that is too weak
absl::StatusOr<std::string> RequestKeyId(std::string_view request);

class Authority {
 public:
  static absl::StatusOr<Authority> Generate(const std::string& common_name,
                                            int64_t lifetime_s = kAuthorityLifetimeS);
  // Errors: INVALID_ARGUMENT  no CA's certificate, not its key
  static absl::StatusOr<Authority> Parse(std::string_view what, std::string_view key_pem,
                                         std::string_view certificate_pem);

  const Certificate& certificate() const { return own_.chain.front(); }
  const KeyAndChain& key_and_chain() const { return own_; }

  // With a new key. Errors: INVALID_ARGUMENT  a name; FAILED_PRECONDITION  the CA has expired
  absl::StatusOr<KeyAndChain> Issue(const IssueOptions& options) const;
  // With the key of a request, which whoever sends it has proved to hold.
  // Errors: the same; INVALID_ARGUMENT  no request, or a key that is too weak
  absl::StatusOr<std::vector<Certificate>> IssueFor(std::string_view request,
                                                    const IssueOptions& options) const;

 private:
  explicit Authority(KeyAndChain own) : own_(std::move(own)) {}
  absl::StatusOr<Certificate> Sign(EVP_PKEY* key, const IssueOptions& options) const;

  KeyAndChain own_;
};

}  // namespace outboard::tls
