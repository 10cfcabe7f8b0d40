// One process of the user's program: its output goes into a log, its reports to the sweep.
//
// It is a process group of its own, and is ended when this process ends for whatever reason. Its
// environment has OUTBOARD_TRIAL (its number), OUTBOARD_REPORT_FD (client/report/report_channel.h),
// with a bound CLOUD_MAX_COST, and `variables`, as "NAME=value".
//
// Threads: one.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/sweep/report_line.h"

namespace outboard::cli {

class TrialProcess {
 public:
  // Errors: UNAVAILABLE          no process, pipe or log to be had
  //         FAILED_PRECONDITION  no such program, or it cannot be run: with the reason
  static absl::StatusOr<TrialProcess> Start(int trial, const std::vector<std::string>& command,
                                            const std::string& log_path,
                                            std::optional<int64_t> max_cost_micro_usd,
                                            const std::vector<std::string>& variables = {});
  TrialProcess(TrialProcess&& other) noexcept;
  TrialProcess& operator=(TrialProcess&& other) = delete;
  ~TrialProcess();  // kills it, if it runs

  int output_fd() const { return output_; }    // to poll; -1 at its end
  int reports_fd() const { return reports_; }  // likewise
  // To poll: can be read at its end; -1: the system has none.
  int exit_fd() const { return exit_; }
  // Reads what there is, without waiting, and calls `on_report` for each line that says something.
  void Read(const std::function<void(const ReportLine&)>& on_report);

  // Once ended, its exit status as waitpid gives it. Does not wait.
  std::optional<int> Poll();
  // Asks it to end, as Ctrl-C would; kills it if it has not within kStopWithin of the first call.
  static constexpr std::chrono::seconds kStopWithin{10};
  void Stop();
  // The last line that it printed, to say why it failed.
  const std::string& last_line() const { return last_line_; }

 private:
  TrialProcess() = default;
  void ReadFrom(int& fd, std::string& partial, bool is_output,
                const std::function<void(const ReportLine&)>& on_report);

  int pid_ = -1, output_ = -1, reports_ = -1, exit_ = -1, log_ = -1;
  std::string output_line_, report_line_;  // begun, without their ends
  std::string last_line_;
  std::optional<std::chrono::steady_clock::time_point> asked_to_stop_;
};

}  // namespace outboard::cli
