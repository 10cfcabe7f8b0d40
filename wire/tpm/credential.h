// A credential: a secret that only the TPM of one endorsement key opens, and only while it holds
// one attestation key (TCG "TPM 2.0 Library", part 1, section 24, "Credential Protection", and
// part 3, section 12.6, TPM2_MakeCredential). And the answer by which a node shows that it has
// opened it.
// Threads: any; MakeCredential reads the system's randomness.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "wire/tpm/tpm_keys.h"

namespace outboard::tpm {

inline constexpr size_t kSecretBytes = 32;
inline constexpr size_t kAnswerBytes = 32;
// Of what is sent: TPMs take no more.
inline constexpr size_t kCredentialBytesMax = 256, kSeedBytesMax = 256;

struct Credential {
  std::string id_object;  // TPM2B_ID_OBJECT without its size: a MAC, and the secret encrypted
  std::string seed;       // TPM2B_ENCRYPTED_SECRET without its size: for the endorsement key
};

// `secret` has kSecretBytes. `name` is AttestationKeyName's.
// Errors: INTERNAL  OpenSSL refuses
absl::StatusOr<Credential> MakeCredential(const EndorsementKey& key, std::string_view name,
                                          std::string_view secret);

// A MAC by the secret over the request for a certificate and the serial number: an answer is of no
// use for another key or another node. kAnswerBytes.
std::string AnswerOf(std::string_view secret, std::string_view certificate_request,
                     std::string_view serial);
// In constant time.
bool IsSame(std::string_view answer, std::string_view expected);

}  // namespace outboard::tpm
