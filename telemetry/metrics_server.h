// Serves /metrics by HTTP to Prometheus, on a port of its own: a few connections, small requests,
// short timeouts. Beyond this machine only to those who present a token, since figures tell how
// much is computed and earned (docs/decisions/061-operators-can-see.md).
//
// Threads: any; answers on threads of its own.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "telemetry/exposition.h"

namespace outboard::telemetry {

struct MetricsServerOptions {
  std::string listen;  // "HOST:PORT", port 0: any; an IPv6 host in brackets
  // What a request must present as "authorization: Bearer TOKEN"; empty: nothing.
  std::string token;
  Processes processes = kInAll;
  BuildInfo build;
  bool by_account = false;
};

class MetricsServer {
 public:
  // Errors: INVALID_ARGUMENT  no HOST:PORT; or other machines reach the address and there is no
  //                           token
  //         UNAVAILABLE       the address is taken or is none of this machine's
  static absl::StatusOr<std::unique_ptr<MetricsServer>> Start(MetricsServerOptions options);
  ~MetricsServer();  // answers what has begun

  const std::string& address() const { return address_; }  // with the port that was chosen

 private:
  class Impl;
  explicit MetricsServer(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
  std::string address_;
};

}  // namespace outboard::telemetry
