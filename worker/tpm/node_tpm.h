// The TPM 2.0 of a node: what it shows to its gateway, and how it opens a credential (wire/tpm).
// Keys are made in the TPM each time, the same ones as long as nobody clears it; nothing is left
// there.
//
// Threads: one.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "wire/tpm/tpm_keys.h"

namespace outboard::worker {

// Where the TPM is, as tpm2-tss has it: "device:/dev/tpmrm0". $OUTBOARD_NODE_TPM, for tests and for
// machines where it is elsewhere, goes before the kernel's own; "none" there leaves it out.
// Nullopt: this machine has none.
std::optional<std::string> TpmOfThisMachine();

class NodeTpm {
 public:
  // Connects, and makes both keys: a second for most TPMs, with RSA up to ten or so.
  // Errors: UNAVAILABLE  tpm2-tss is not there, or nothing answers, or the TPM refuses: what it
  // said
  static absl::StatusOr<std::unique_ptr<NodeTpm>> Open(const std::string& where,
                                                       tpm::KeyKind kind = tpm::KeyKind::kRsa2048);
  virtual ~NodeTpm() = default;

  // As wire/tpm/tpm_keys.h takes them.
  virtual const std::string& endorsement_key() const = 0;
  virtual const std::string& attestation_key() const = 0;
  // X.509 in DER, as its maker has put it there; "": there is none.
  virtual const std::string& endorsement_certificate() const = 0;

  // Opens a credential for these two keys: its secret.
  // Errors: INVALID_ARGUMENT  too many bytes; UNAVAILABLE  the TPM refuses: it is for another
  virtual absl::StatusOr<std::string> Activate(std::string_view id_object,
                                               std::string_view seed) = 0;
};

}  // namespace outboard::worker
