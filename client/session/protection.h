// How connections to a gateway are protected: by TLS, or in the clear where they stay on this
// machine or the user said so (docs/tls.md).
// Threads: any; a value.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "wire/tls/verify.h"

namespace outboard::session {

struct Protection {
  // Never TLS: key and data go in the clear, wherever to.
  bool in_the_clear = false;
  // Also to this machine by TLS: set where the user says whom to trust.
  bool also_here = false;
  tls::Trust trust = {};
  std::shared_ptr<const tls::KeyAndChain> identity = nullptr;  // of a worker; else null

  // CLOUD_FINGERPRINT and CLOUD_CA say whom to trust, and that a connection to this machine is by
  // TLS too; CLOUD_TLS=1 says that alone. CLOUD_INSECURE=1 sets `in_the_clear`.
  // Errors: INVALID_ARGUMENT  a value that is damaged, a file that cannot be read, or both
  //                           CLOUD_INSECURE and one of the others
  static absl::StatusOr<Protection> FromEnvironment();
  // The same from values, which may be empty. `names`: what messages call them.
  struct TrustNames {
    const char* ca = "CLOUD_CA";
    const char* fingerprint = "CLOUD_FINGERPRINT";
  };
  static absl::StatusOr<Protection> Trusting(const std::string& ca_file,
                                             const std::string& fingerprint,
                                             const TrustNames& names);

  // Of a target that passed CheckTarget. A unix socket never has TLS: the kernel says who may open
  // it.
  bool UsesTls(const std::string& target) const;

  // Why no connection to `target` came about, from one more attempt by hand: a certificate that is
  // refused, TLS where there is none or none where there is. `otherwise` where it finds no reason.
  // Blocks for `within`, and as long as a name takes to be looked up.
  absl::Status Explain(const std::string& target, absl::Status otherwise,
                       std::chrono::milliseconds within = std::chrono::seconds(2)) const;
};

}  // namespace outboard::session
