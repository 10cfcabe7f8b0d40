// The certificates by which an operator trusts makers of TPMs, and whether the certificate of an
// endorsement key leads to one of them.
// Threads: any.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

typedef struct x509_store_st X509_STORE;

namespace outboard::tpm {

class MakerRoots {
 public:
  // `pem`: roots, and what makers put between them and their TPMs; each is trusted by itself.
  // `what` is for messages: a file.
  // Errors: INVALID_ARGUMENT  none, a damaged one, or too many bytes
  static absl::StatusOr<MakerRoots> Parse(std::string_view what, std::string_view pem);

  // `certificate`: X.509, DER, as EndorsementKey::IssuerOf has found to be of its key. Signatures
  // and dates up to one of the roots are checked, and that it is for an endorsement key where it
  // says what it is for; not whether it was revoked.
  // Errors: PERMISSION_DENIED  no chain leads from it to a root: OpenSSL's reason
  absl::Status Check(std::string_view certificate) const;

  size_t count() const { return count_; }

 private:
  MakerRoots(std::shared_ptr<X509_STORE> store, size_t count)
      : store_(std::move(store)), count_(count) {}

  std::shared_ptr<X509_STORE> store_;
  size_t count_;
};

}  // namespace outboard::tpm
