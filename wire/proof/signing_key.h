// Ed25519 (RFC 8032): keys of 32 bytes, signatures of 64.
// Threads: any; a key does not change.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"

struct evp_pkey_st;  // OpenSSL's

namespace outboard::signing {

inline constexpr size_t kPublicKeyBytes = 32;
inline constexpr size_t kSignatureBytes = 64;

class SigningKey {
 public:
  // A new key, from the system's randomness.
  static SigningKey Make();
  // Reads the key in `path`; makes the file, for its owner alone (mode 0600), where there is none.
  // Errors: DATA_LOSS            the file holds no key
  //         FAILED_PRECONDITION  others may read it
  //         UNAVAILABLE, PERMISSION_DENIED
  static absl::StatusOr<SigningKey> Open(const std::string& path);

  const std::string& public_key() const { return public_key_; }
  std::string Sign(std::string_view statement) const;

 private:
  SigningKey(std::string seed, std::string public_key, std::shared_ptr<evp_pkey_st> pair)
      : seed_(std::move(seed)), public_key_(std::move(public_key)), pair_(std::move(pair)) {}
  static absl::StatusOr<SigningKey> FromSeed(std::string seed);

  std::string seed_;  // secret
  std::string public_key_;
  std::shared_ptr<evp_pkey_st> pair_;  // made of the seed, which takes as long as to sign
};

// False also for a key or a signature of another length.
bool IsSignedBy(std::string_view public_key, std::string_view statement,
                std::string_view signature);

// The bytes of a statement: after its tag, integers of 8 bytes, big endian, and strings behind
// their lengths, so that no two statements have the same bytes.
class StatementBytes {
 public:
  explicit StatementBytes(std::string_view tag) : bytes_(tag) {}
  StatementBytes& Int(int64_t value);
  StatementBytes& Bytes(std::string_view value);
  const std::string& str() const { return bytes_; }

 private:
  std::string bytes_;
};

}  // namespace outboard::signing
