// The text that /metrics answers with: what was counted, what samplers say, and figures of the
// process itself, in Prometheus' text format.
//
// Threads: any.
#pragma once

#include <string>

#include "telemetry/metric.h"

namespace outboard::telemetry {

// What outboard_build_info says.
struct BuildInfo {
  std::string version, protocol, graph_schema;
};

// Everything that `processes` show; `by_account` adds what names accounts.
std::string Exposition(Processes processes, const BuildInfo& build, bool by_account);

}  // namespace outboard::telemetry
