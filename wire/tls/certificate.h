// Certificates and keys as values: parsed from PEM, shared, never changed. Only wire/tls includes
// OpenSSL's headers for them.
// Threads: any.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "wire/tls/fingerprint.h"

typedef struct x509_st X509;
typedef struct evp_pkey_st EVP_PKEY;

namespace outboard::tls {

// Certificate::key_id of a public key: the bits as a certificate has them.
std::string KeyIdOf(std::string_view public_key);

class Certificate {
 public:
  // Takes ownership.
  explicit Certificate(X509* certificate);

  // All certificates in a PEM text, which may hold other things too; at least one.
  // `what` is for messages: a file, or "the server's certificate".
  // Errors: INVALID_ARGUMENT  none, or a damaged one, or too many bytes
  static absl::StatusOr<std::vector<Certificate>> ParseAll(std::string_view what,
                                                           std::string_view pem);

  X509* get() const { return certificate_.get(); }
  std::string ToPem() const;
  Fingerprint fingerprint() const;
  std::string serial() const;       // hex digits
  std::string key_id() const;       // 32 hex digits: the same of every certificate of one key
  std::string common_name() const;  // printable ASCII, at most 100 bytes; "" if there is none
  std::string issuer() const;       // the common name of whoever issued it
  std::vector<std::string> names() const;  // DNS names and addresses; printable, kNamesMax at most
  absl::Time not_before() const;
  absl::Time not_after() const;
  bool is_authority() const;

 private:
  std::shared_ptr<X509> certificate_;
};

class PrivateKey {
 public:
  explicit PrivateKey(EVP_PKEY* key);  // takes ownership

  static absl::StatusOr<PrivateKey> Generate();  // P-256, which every TLS library takes
  // Errors: INVALID_ARGUMENT
  static absl::StatusOr<PrivateKey> Parse(std::string_view what, std::string_view pem);

  EVP_PKEY* get() const { return key_.get(); }
  std::string ToPem() const;  // a secret
  bool Fits(const Certificate& certificate) const;

 private:
  std::shared_ptr<EVP_PKEY> key_;
};

// What a server or a worker presents, and the key that proves it: its own certificate first, then
// those up to the CA.
struct KeyAndChain {
  PrivateKey key;
  std::vector<Certificate> chain;

  // Errors: INVALID_ARGUMENT  no key, no certificate, or they do not belong together
  static absl::StatusOr<KeyAndChain> Parse(std::string_view what, std::string_view key_pem,
                                           std::string_view chain_pem);
  std::string ToPem() const;       // key and chain in one text, so that a file changes at once
  std::string ChainToPem() const;  // not the key
};

// When to renew what is valid between the two: after two thirds, as long as a server that is down
// for a while still finds it good.
absl::Time RenewAt(absl::Time not_before, absl::Time not_after);

// OpenSSL's last error in words, for messages about files; empties its queue.
std::string LastTlsError();

}  // namespace outboard::tls
