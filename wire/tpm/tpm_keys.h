// Public keys of a TPM 2.0 as it writes them (TPMT_PUBLIC: TCG "TPM 2.0 Library", part 2, 12.2.4),
// of the two kinds by which a machine proves itself:
//
//   endorsement key  the TPM's own, and the same as long as it lives; decrypts, and only what a
//                    credential is. As the templates L-1 (RSA 2048) and L-2 (ECC P-256) of TCG "EK
//                    Credential Profile for TPM Family 2.0", B.3, have it
//   attestation key  P-256; signs, and only what the TPM itself has written
//
// Both never leave their TPM. Others are refused: each field but the key itself is as the template
// has it.
// Threads: any.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "wire/tls/fingerprint.h"

typedef struct evp_pkey_st EVP_PKEY;

namespace outboard::tpm {

inline constexpr size_t kPublicBytesMax = 512;        // of RSA 2048: 314
inline constexpr size_t kCertificateBytesMax = 4096;  // makers' have 1 to 2 KB

// Of endorsement keys: those of the templates L-1 and L-2 of the TCG EK Credential Profile.
enum class KeyKind { kRsa2048, kP256 };

// What a TPM makes the key of: the public area with zeros in the place of the key.
std::string EndorsementTemplate(KeyKind kind);
std::string AttestationTemplate();

class EndorsementKey {
 public:
  // Errors: INVALID_ARGUMENT  another kind of key, other attributes, too many bytes
  static absl::StatusOr<EndorsementKey> Parse(std::string_view public_area);

  KeyKind kind() const { return kind_; }
  // Of its SubjectPublicKeyInfo, as `openssl x509 -pubkey` of its certificate has it.
  const tls::Fingerprint& fingerprint() const { return fingerprint_; }
  EVP_PKEY* get() const { return key_.get(); }

  // Whether the certificate (X.509, DER), which its maker has put into the TPM, is of this key; who
  // issued it is not checked. Returns the issuer's name, printable.
  // Errors: INVALID_ARGUMENT  it is damaged, or another key's, or has too many bytes
  absl::StatusOr<std::string> IssuerOf(std::string_view certificate) const;

 private:
  EndorsementKey(KeyKind kind, EVP_PKEY* key);  // takes ownership

  KeyKind kind_;
  std::shared_ptr<EVP_PKEY> key_;
  tls::Fingerprint fingerprint_;
};

// The name by which a TPM knows an attestation key: a digest of its public area, so that whoever
// holds a key of this name holds one with these attributes. 34 bytes.
// Errors: INVALID_ARGUMENT  as above
absl::StatusOr<std::string> AttestationKeyName(std::string_view public_area);

}  // namespace outboard::tpm
