// `outboard trace`: what a trace (PROFILE=out.json, docs/latency.md) says in a page of text: how
// much of the time was waiting, and which spans took the most.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace outboard::cli {

// `json` is what client/trace/perfetto.h writes. Shares are of the time from the first Run's call
// to the end of the last span; spans lie within each other, so they add up to more than the whole.
// Errors: INVALID_ARGUMENT  it is no such file
absl::StatusOr<std::string> TraceSummary(std::string_view json);

// Returns the exit code.
int RunTrace(const std::string& file);

}  // namespace outboard::cli
