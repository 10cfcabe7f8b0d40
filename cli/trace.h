// `outboard trace`: summarises a trace (PROFILE=out.json, docs/latency.md) in a page of text: the
// share of time spent waiting, and the spans that took the most.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace outboard::cli {

// Summarises `json`, a file as client/trace/perfetto.h writes it. Shares are of the time from the
// first Run's call to the end of the last span; spans nest, so shares add up to more than 100 %.
// Errors: INVALID_ARGUMENT  not such a file
absl::StatusOr<std::string> TraceSummary(std::string_view json);

// Returns the exit code.
int RunTrace(const std::string& file);

}  // namespace outboard::cli
