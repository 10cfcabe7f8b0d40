// The log and the metrics of a server process, from its flags: started before anything else of the
// server, ended last. INVALID_ARGUMENT for flags that make no sense, UNAVAILABLE where the address
// is taken, and the errors of ReadFleetSecret for the token's file.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/arguments.h"
#include "cli/commands.h"
#include "telemetry/metric.h"
#include "telemetry/metrics_server.h"

namespace outboard::cli {

// Declares the options of `flags`. `metrics`, `level`: what --metrics-listen and --log-level are
// where they are not given.
void AddTelemetry(Command command, TelemetryFlags& flags, const std::string& metrics,
                  const std::string& level);

class ServerTelemetry {
 public:
  // `metrics_listen` and `log_level`: where the flags leave them open.
  static absl::StatusOr<std::unique_ptr<ServerTelemetry>> Start(const TelemetryFlags& flags,
                                                                telemetry::Processes processes,
                                                                const std::string& metrics_listen,
                                                                const std::string& log_level);
  ~ServerTelemetry();  // writes what is queued of the log

  // Once the server is ready: logs where metrics are served, and returns it: "HOST:PORT"; empty:
  // nowhere.
  std::string Announce() const;

 private:
  ServerTelemetry() = default;
  std::unique_ptr<telemetry::MetricsServer> server_;
};

}  // namespace outboard::cli
