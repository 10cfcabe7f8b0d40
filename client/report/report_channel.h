// The pipe to the `outboard sweep` that has started this process (OUTBOARD_REPORT_FD), if one has:
// lines of words NAME=NUMBER (cli/sweep/report_line.h).
//
// Threads: any.
#pragma once

#include <cstdint>
#include <string>

namespace outboard::internal {

// True if somebody reads.
bool HasReportChannel();
// Writes the words and the cost so far, of ended sessions and `open_micro_usd`. Nobody's loss is an
// error: a reader that has gone is ignored.
void WriteReport(const std::string& words, uint64_t open_micro_usd);
// A session has ended and has cost this much.
void ReportEndedSession(uint64_t cost_micro_usd);

}  // namespace outboard::internal
