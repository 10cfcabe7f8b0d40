// A fingerprint: SHA-256 of a certificate's public key (its SubjectPublicKeyInfo, as RFC 7469 pins
// it), written "sha256:" and 64 hex digits. Of the key and not of the certificate: a certificate
// that is renewed with its key keeps its fingerprint.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace outboard::tls {

struct Fingerprint {
  std::array<uint8_t, 32> bytes{};

  // Also accepts capital letters, and colons between the digits as other programs print them.
  // `name` is for the message: "CLOUD_FINGERPRINT".
  // Errors: INVALID_ARGUMENT
  static absl::StatusOr<Fingerprint> Parse(std::string_view name, std::string_view text);
  std::string ToString() const;
  friend bool operator==(const Fingerprint&, const Fingerprint&) = default;
};

}  // namespace outboard::tls
