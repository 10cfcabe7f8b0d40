// One run of the user's program in which its sessions have no device, or, to measure, one that ends
// after some steps on a real one. What it prints goes to standard error.
//
// It is a process group of its own, and is ended when this process ends. SIGINT and SIGTERM end it,
// and what it had said by then counts. Threads: one. Blocks until the program has ended.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/session/estimate/recording_session.h"
#include "client/session/estimate/run_log.h"

namespace outboard::cli {

// Of all sessions of the program together: their kernels, and the time of each after the other.
struct RecordedRun {
  session::RecordedWork work;
  std::vector<session::SentGraph> graphs;  // of all sessions, if they were asked for
  std::optional<session::MeasuredSteps> measured;  // where it was measured
  bool stopped = false;   // it did as many steps as were asked for, and was ended
  bool interrupted = false;  // by the user, who wants no more runs
  int exit_code = 0;      // of the program; 128 and more: the signal that ended it
};

// A program that was asked to end and has not within this time is killed.
inline constexpr std::chrono::seconds kProgramStopsWithin{10};

// `steps`: ends it after so many; 0: it runs to its end. `with_graphs`: it writes its graphs, too.
// Errors: UNAVAILABLE  no process
//         FAILED_PRECONDITION  no such program, or it cannot be run; names it
absl::StatusOr<RecordedRun> RecordRun(const std::vector<std::string>& command, int64_t steps,
                                      bool with_graphs = false);
// On the device that the environment, with these variables ("NAME=value") added, gives it.
absl::StatusOr<RecordedRun> MeasureRun(const std::vector<std::string>& command,
                                       const std::vector<std::string>& variables);

// Reads what the program has written to its pipe: the last record of each session and graph, and
// what was measured. Errors: INVALID_ARGUMENT  anything else
absl::StatusOr<RecordedRun> ReadRecords(std::string_view text);

}  // namespace outboard::cli
