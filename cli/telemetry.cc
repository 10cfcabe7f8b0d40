#include "cli/telemetry.h"

#include <array>
#include <cstdio>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "cli/common.h"
#include "gateway/server/fleet_secret.h"
#include "telemetry/log.h"
#include "wire/limits.h"

namespace outboard::cli {

namespace {

constexpr std::string_view kOff = "off";

absl::StatusOr<telemetry::LogOptions> LogOptionsOf(const TelemetryFlags& flags,
                                                   const std::string& level) {
  using telemetry::LogLevel;
  constexpr std::array<std::pair<std::string_view, LogLevel>, 5> kLevels = {
      {{"debug", LogLevel::kDebug},
       {"info", LogLevel::kInfo},
       {"warning", LogLevel::kWarning},
       {"error", LogLevel::kError},
       {"off", LogLevel::kOff}}};
  std::optional<LogLevel> chosen;
  for (const auto& [name, value] : kLevels)
    if (level == name) chosen = value;
  if (!chosen)
    return absl::InvalidArgumentError(
        absl::StrCat("--log-level: ", level, " is none of debug, info, warning, error, off"));
  if (flags.log_format != "text" && flags.log_format != "json")
    return absl::InvalidArgumentError(
        absl::StrCat("--log-format: ", flags.log_format, " is neither text nor json"));
  return telemetry::LogOptions{.level = *chosen,
                               .format = flags.log_format == "json" ? telemetry::LogFormat::kJson
                                                                    : telemetry::LogFormat::kText};
}

absl::StatusOr<std::string> TokenOf(const TelemetryFlags& flags) {
  if (flags.metrics_token_file.empty()) return "";
  auto token = gateway::ReadFleetSecret(flags.metrics_token_file);
  if (token.ok()) return token;
  return absl::InvalidArgumentError(
      absl::StrCat("--metrics-token-file: ", token.status().message()));
}

}  // namespace

void AddTelemetry(Command command, TelemetryFlags& flags, const std::string& metrics,
                  const std::string& level) {
  command.Add("--metrics-listen", &flags.metrics_listen,
              "HOST:PORT where Prometheus reads /metrics, or off (default: " + metrics + ")");
  command.Add("--metrics-token-file", &flags.metrics_token_file,
              "File with a secret word that Prometheus must present; required where other machines "
              "reach --metrics-listen");
  command.Add("--log-format", &flags.log_format, "Of the log on stderr: text or json")
      .ShowDefault();
  command.Add("--log-level", &flags.log_level,
              "What is logged at least: debug, info, warning, error, off (default: " + level +
                  "; docs/logs.md)");
}

absl::StatusOr<std::unique_ptr<ServerTelemetry>> ServerTelemetry::Start(
    const TelemetryFlags& flags, telemetry::Processes processes, const std::string& metrics_listen,
    const std::string& log_level) {
  OB_ASSIGN_OR_RETURN(const telemetry::LogOptions log,
                      LogOptionsOf(flags, flags.log_level.empty() ? log_level : flags.log_level));
  telemetry::StartLogging(log);
  auto started = std::unique_ptr<ServerTelemetry>(new ServerTelemetry);
  const std::string& listen = flags.metrics_listen.empty() ? metrics_listen : flags.metrics_listen;
  if (listen == kOff) return started;
  OB_ASSIGN_OR_RETURN(const std::string token, TokenOf(flags));
  telemetry::HideInLogs(token);
  auto server =
      telemetry::MetricsServer::Start({.listen = listen,
                                       .token = token,
                                       .processes = processes,
                                       .build = {kVersion, absl::StrCat(wire::kProtocolVersion),
                                                 absl::StrCat(wire::kGraphSchemaVersion)},
                                       .by_account = flags.metrics_by_account});
  if (server.ok()) {
    started->server_ = *std::move(server);
  } else if (flags.metrics_listen.empty()) {  // nobody asked: no reason to stop
    const absl::string_view message = server.status().message();
    telemetry::LogWarning("metrics_not_served", {{"message", message}});
  } else {
    return server.status();
  }
  return started;
}

ServerTelemetry::~ServerTelemetry() {
  server_.reset();
  telemetry::StopLogging();
}

std::string ServerTelemetry::Announce() const {
  if (server_ != nullptr) telemetry::LogInfo("metrics_served", {{"address", server_->address()}});
  return server_ == nullptr ? "" : server_->address();
}

void AddMetricsCommands(Arguments& app) {
  Command metrics = app.Subcommand("metrics", "What /metrics shows");
  metrics.RequireSubcommand();
  Command metrics_list =
      metrics.ListSubcommand("Print the table of metrics, as docs/metrics.md has it");
  metrics_list.Runs([] {
    std::fputs(telemetry::MetricsPage().c_str(), stdout);
    return 0;
  });
}

}  // namespace outboard::cli
