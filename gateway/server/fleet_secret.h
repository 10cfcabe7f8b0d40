// The secret that the workers of a gateway share with it: 64 hex digits of 32 random bytes, in the
// file "fleet.secret" of the gateway's data folder, which its owner alone may read.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace outboard::gateway {

std::string FleetSecretPath(const std::string& data_folder);

// Reads the secret in `path`: its first word. The second, if there is one, is the fingerprint of
// the gateway's CA, by which a worker knows its gateway: it goes to `fingerprint`.
// Errors: NOT_FOUND            no such file
//         PERMISSION_DENIED    this user may not read it
//         FAILED_PRECONDITION  others may read it, or it holds no word of printable characters
absl::StatusOr<std::string> ReadFleetSecret(const std::string& path,
                                            std::string* fingerprint = nullptr);

// Reads the secret of a data folder, which exists; makes one where there is none.
// Errors: as ReadFleetSecret, but NOT_FOUND; UNAVAILABLE, it cannot be written.
absl::StatusOr<std::string> EnsureFleetSecret(const std::string& data_folder);

// Writes the fingerprint behind the secret, if the file has this secret and not this fingerprint.
absl::Status AddFleetFingerprint(const std::string& data_folder, const std::string& secret,
                                 const std::string& fingerprint);

}  // namespace outboard::gateway
