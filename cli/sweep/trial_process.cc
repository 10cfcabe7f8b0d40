#include "cli/sweep/trial_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/program/start_program.h"

namespace outboard::cli {
namespace {

constexpr int kReportFd = 3;          // a shell can name descriptors of one digit
constexpr size_t kReadMax = 1 << 20;  // at a time, so that one loud trial does not keep the others

void CloseAll(std::initializer_list<int> fds) {
  for (const int fd : fds)
    if (fd >= 0) close(fd);
}

}  // namespace

absl::StatusOr<TrialProcess> TrialProcess::Start(int trial, const std::vector<std::string>& command,
                                                 const std::string& log_path,
                                                 std::optional<int64_t> max_cost_micro_usd,
                                                 const std::vector<std::string>& variables) {
  int output[2] = {-1, -1}, reports[2] = {-1, -1};
  const int log = open(log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (log < 0) return SystemError(log_path);
  if (pipe2(output, O_CLOEXEC) != 0 || pipe2(reports, O_CLOEXEC) != 0) {
    const absl::Status status = SystemError("no pipe for a trial");
    CloseAll({log, output[0], output[1], reports[0], reports[1]});
    return status;
  }
  std::vector<std::string> added = variables;
  added.push_back(absl::StrCat("OUTBOARD_TRIAL=", trial));
  added.push_back(absl::StrCat("OUTBOARD_REPORT_FD=", kReportFd));
  if (max_cost_micro_usd.has_value())
    added.push_back(absl::StrFormat("CLOUD_MAX_COST=%d.%06d", *max_cost_micro_usd / 1'000'000,
                                    *max_cost_micro_usd % 1'000'000));
  const absl::StatusOr<pid_t> pid =
      StartProgram({.name = "a trial",
                    .command = command,
                    .variables = std::move(added),
                    .descriptors = {{output[1], 1}, {output[1], 2}, {reports[1], kReportFd}}});
  CloseAll({output[1], reports[1]});
  TrialProcess process;
  process.pid_ = pid.ok() ? *pid : -1;
  process.output_ = output[0];
  process.reports_ = reports[0];
  process.log_ = log;
  if (!pid.ok()) return pid.status();
  process.exit_ = static_cast<int>(syscall(SYS_pidfd_open, *pid, 0));  // -1: its end is seen later
  for (const int fd : {process.output_, process.reports_}) fcntl(fd, F_SETFL, O_NONBLOCK);
  return process;
}

TrialProcess::TrialProcess(TrialProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      output_(std::exchange(other.output_, -1)),
      reports_(std::exchange(other.reports_, -1)),
      exit_(std::exchange(other.exit_, -1)),
      log_(std::exchange(other.log_, -1)),
      output_line_(std::move(other.output_line_)),
      report_line_(std::move(other.report_line_)),
      last_line_(std::move(other.last_line_)),
      asked_to_stop_(other.asked_to_stop_) {}

TrialProcess::~TrialProcess() {
  if (pid_ > 0) {
    kill(-pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  CloseAll({output_, reports_, exit_, log_});
}

void TrialProcess::ReadFrom(int& fd, std::string& partial, bool is_output,
                            const std::function<void(const ReportLine&)>& on_report) {
  const auto on_line = [&](std::string_view line) {
    if (is_output) {
      const size_t begin = line.find_first_not_of(" \t");
      if (begin != std::string_view::npos)
        last_line_ = std::string(line.substr(begin, kReportLineMax));
    }
    const ReportLine report = ReadReportLine(line);
    if (report.step.has_value() || !report.values.empty() || report.cost_micro_usd.has_value())
      on_report(report);
  };
  char piece[1 << 16];
  for (size_t total = 0; fd >= 0 && total < kReadMax;) {
    const ssize_t count = read(fd, piece, sizeof piece);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (count <= 0) {
      if (!partial.empty()) on_line(std::exchange(partial, ""));
      close(std::exchange(fd, -1));
      return;
    }
    total += static_cast<size_t>(count);
    std::string_view bytes(piece, static_cast<size_t>(count));
    // A full disk loses the log, not the sweep.
    if (is_output) [[maybe_unused]]
      const ssize_t written = write(log_, bytes.data(), bytes.size());
    for (size_t end; (end = bytes.find_first_of("\n\r")) != std::string_view::npos;) {
      partial += bytes.substr(0, end);
      on_line(std::exchange(partial, ""));
      bytes.remove_prefix(end + 1);
    }
    if (partial.size() < kReportLineMax) partial += bytes;
  }
}

void TrialProcess::Read(const std::function<void(const ReportLine&)>& on_report) {
  ReadFrom(reports_, report_line_, /*is_output=*/false, on_report);
  ReadFrom(output_, output_line_, /*is_output=*/true, on_report);
}

std::optional<int> TrialProcess::Poll() {
  if (asked_to_stop_.has_value()) Stop();
  int status = 0;
  if (pid_ < 0 || waitpid(pid_, &status, WNOHANG) != pid_) return std::nullopt;
  kill(-pid_, SIGKILL);  // its children, if any live
  pid_ = -1;
  return status;
}

void TrialProcess::Stop() {
  if (pid_ < 0) return;
  const auto now = std::chrono::steady_clock::now();
  if (!asked_to_stop_.has_value()) {
    asked_to_stop_ = now;
    kill(-pid_, SIGINT);
  } else if (now - *asked_to_stop_ > kStopWithin) {
    kill(-pid_, SIGKILL);
  }
}

}  // namespace outboard::cli
