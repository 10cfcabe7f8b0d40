// Serves an image to machines that boot over the network: HTTP/1.1, GET and HEAD; over TLS too,
// where it is given a certificate.
//
//   /boot.ipxe            the first script, the same for everybody
//   /node.ipxe?serial=    the second, for one machine: may hold its claim
//   /sha256/DIGEST        a file, whole or a part (Range)
//
// Whoever reaches the address may ask, so everything is bounded: kBootConnectionsMax connections,
// of which one address has at most half; a header of 8 KB, no body; ten seconds for a request, half
// a minute in which nothing of an answer is taken. Files are read as they are sent, a part at a
// time.
//
// Threads: Start creates one, which runs all connections, `choose`, `find` and `claim_for`; the
// destructor ends it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cli/node/boot_script.h"

namespace outboard::cli {

inline constexpr int kBootConnectionsMax = 512;

// What a machine boots (gateway/nodes/image_rows.h).
struct BootChoice {
  BootImage image;
  int64_t joins_within_s = 0;  // of an image on trial
};

// What HTTPS presents.
struct HttpsIdentity {
  std::string pem;  // the chain and its key
  absl::Time renew_at = absl::InfiniteFuture();
};

struct BootServerOptions {
  std::string listen;  // HOST:PORT; port 0 takes a free one
  std::string https_listen = {};  // likewise; empty: no HTTPS
  // Asked at the start, and again from `renew_at` on; one that fails keeps what was there.
  std::function<absl::StatusOr<HttpsIdentity>()> https_identity = {};
  std::optional<BootImage> image;  // of machines of which nothing was said
  std::optional<BootFile> efi = {};  // /boot.efi: a signed file for firmware that boots over HTTP
  std::vector<BootFile> files;       // besides
  // Another file of this digest, 64 hex digits; nullopt: there is none. Asked for each
  // request.
  std::function<std::optional<BootFile>(const std::string& digest)> find =
      [](const std::string&) { return std::nullopt; };
  // What was said of this machine; nullopt: nothing. `boots`: it asks in order to boot.
  std::function<std::optional<BootChoice>(const std::string& serial, bool boots)> choose =
      [](const std::string&, bool) { return std::nullopt; };
  ScriptOptions script;
  // The claim for a machine, or "": asked for each /node.ipxe with a serial number.
  std::function<std::string(const std::string& serial)> claim_for;
};

class BootServer {
 public:
  // Errors: INVALID_ARGUMENT  no HOST:PORT
  //         UNAVAILABLE       the address is taken or is none of this machine's
  //         UNIMPLEMENTED     this build has no such server
  static absl::StatusOr<std::unique_ptr<BootServer>> Start(BootServerOptions options);
  virtual ~BootServer() = default;
  virtual std::string address() const = 0;  // with the port that was chosen
  virtual std::string https_address() const = 0;  // ""; there is none
};

}  // namespace outboard::cli
