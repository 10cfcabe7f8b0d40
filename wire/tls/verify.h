// Checks the certificate that the other end of a connection presents, and says in plain words why
// it is refused: expired, of another CA, for another name. Whoever presents it has proved in the
// handshake that it has the key.
// Threads: any. Reads the clock.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "wire/tls/certificate.h"
#include "wire/tls/fingerprint.h"

namespace outboard::tls {

// Whom a client believes. Without either: the system's roots. With both, both must hold.
struct Trust {
  std::vector<Certificate> roots = {};
  // The key of the server's certificate, or of the CA above it. The name is then not checked: it is
  // the key that was written down, wherever the server is reached.
  std::optional<Fingerprint> pinned = std::nullopt;
};

// `chain`: the server's certificate first. `host`: what the user wrote, without a port.
// Errors: UNAVAILABLE  which says what is wrong with the certificate, without host and port
absl::Status CheckServer(const std::vector<Certificate>& chain, const std::string& host,
                         const Trust& trust);

// Of a worker, against the CA that issues to workers.
// Errors: UNAUTHENTICATED
absl::Status CheckWorker(const Certificate& certificate, const Certificate& authority);

}  // namespace outboard::tls
