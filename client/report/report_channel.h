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
// Writes the words, and behind them the cost of the ended sessions plus `open_micro_usd`, that of
// the open one. Does nothing if the reader has gone.
void WriteReport(const std::string& words, uint64_t open_micro_usd);
// A session has ended and has cost this much.
void ReportEndedSession(uint64_t cost_micro_usd);

}  // namespace outboard::internal
