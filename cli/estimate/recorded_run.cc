#include "cli/estimate/recorded_run.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <string_view>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "cli/program/start_program.h"

namespace outboard::cli {

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kPipeFd = 3;
constexpr size_t kRecordBytesMax = 64 << 20;  // of a program that writes there what it likes

volatile sig_atomic_t interrupted = 0;

struct Started {
  pid_t pid = -1;
  int pipe = -1;
};

absl::StatusOr<Started> Start(const std::vector<std::string>& command,
                              const std::vector<std::string>& variables) {
  int records[2];
  if (pipe2(records, O_CLOEXEC) != 0) return SystemError("no pipe for the program");
  const absl::StatusOr<pid_t> pid =
      StartProgram({.name = "the program",
                    .command = command,
                    .variables = variables,
                    .descriptors = {{STDERR_FILENO, STDOUT_FILENO}, {records[1], kPipeFd}}});
  close(records[1]);
  if (pid.ok()) return Started{*pid, records[0]};
  close(records[0]);
  return pid.status();
}

// Reads until the program has ended, or has `enough` and was given time to end by itself.
absl::StatusOr<std::string> ReadAll(const Started& started, bool& stopped,
                                    const std::function<bool(const std::string&)>& enough,
                                    int& status) {
  std::string text;
  std::optional<Clock::time_point> kill_at;
  int asked = 0;
  for (bool open = true;;) {
    if (open) {
      pollfd on{started.pipe, POLLIN, 0};
      if (poll(&on, 1, 50) > 0) {
        char piece[1 << 16];
        const ssize_t count = read(started.pipe, piece, sizeof piece);
        if (count > 0) text.append(piece, static_cast<size_t>(count));
        if (count == 0) open = false;
      }
    } else {
      usleep(10'000);
    }
    if (text.size() > kRecordBytesMax) {
      kill(-started.pid, SIGKILL);
      waitpid(started.pid, &status, 0);
      return absl::ResourceExhaustedError("the program's record of its steps is too long");
    }
    if (!kill_at.has_value() && (interrupted != 0 || enough(text))) {
      stopped = interrupted == 0;
      if (interrupted != 0) kill(-started.pid, SIGINT);
      kill_at = Clock::now() + kProgramStopsWithin;
    }
    if (kill_at.has_value() && Clock::now() > *kill_at) {
      kill(-started.pid, asked++ == 0 ? SIGTERM : SIGKILL);
      kill_at = Clock::now() + std::chrono::seconds(1);
    }
    if (waitpid(started.pid, &status, WNOHANG) == started.pid) break;
  }
  // What it wrote last; a child of its may hold the pipe open.
  fcntl(started.pipe, F_SETFL, O_NONBLOCK);
  char piece[1 << 16];
  for (ssize_t count; (count = read(started.pipe, piece, sizeof piece)) > 0 &&
                      text.size() <= kRecordBytesMax;)
    text.append(piece, static_cast<size_t>(count));
  kill(-started.pid, SIGKILL);  // its children, if any live
  return text;
}

absl::StatusOr<RecordedRun> RunOnce(const std::vector<std::string>& command,
                                    const std::vector<std::string>& variables,
                                    const std::function<bool(const std::string&)>& enough) {
  struct sigaction action {}, before_int {}, before_term {};
  action.sa_handler = [](int) { interrupted = 1; };
  interrupted = 0;
  sigaction(SIGINT, &action, &before_int);
  sigaction(SIGTERM, &action, &before_term);
  const auto restore = [&] {
    sigaction(SIGINT, &before_int, nullptr);
    sigaction(SIGTERM, &before_term, nullptr);
  };
  absl::StatusOr<Started> started = Start(command, variables);
  if (!started.ok()) {
    restore();
    return started.status();
  }
  bool stopped = false;
  int status = 0;
  const absl::StatusOr<std::string> text = ReadAll(*started, stopped, enough, status);
  close(started->pipe);
  const bool was_interrupted = interrupted != 0;
  restore();
  if (!text.ok()) return text.status();
  OB_ASSIGN_OR_RETURN(RecordedRun run, ReadRecords(*text));
  run.stopped = stopped;
  run.interrupted = was_interrupted;
  run.exit_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return run;
}

void AddTo(session::RecordedWork& all, const session::RecordedWork& one) {
  all.runs += one.runs;
  all.steps += one.steps;
  all.graphs += one.graphs;
  all.waits += one.waits;
  all.client_s += one.client_s;
  all.devices = std::max(all.devices, one.devices);
  all.kernels.insert(all.kernels.end(), one.kernels.begin(), one.kernels.end());
  if (all.unknown.empty()) all.unknown = one.unknown;
}

// Takes a line off `text`, with its end. False: there is no whole one.
bool TakeLine(std::string_view& text, std::string_view& line) {
  const size_t end = text.find('\n');
  if (end == std::string_view::npos) return false;
  line = text.substr(0, end + 1);
  text.remove_prefix(end + 1);
  return true;
}

}  // namespace

absl::StatusOr<RecordedRun> ReadRecords(std::string_view text) {
  const absl::Status wrong =
      absl::InvalidArgumentError("what the program wrote is no record of its steps");
  std::map<uint64_t, session::RecordedWork> sessions;
  std::map<std::pair<uint64_t, uint64_t>, session::SentGraph> graphs;
  RecordedRun run;
  for (std::string_view line; TakeLine(text, line);) {
    if (line.starts_with("measured ")) {
      OB_ASSIGN_OR_RETURN(run.measured,
                          session::MeasuredFromLine(line.substr(0, line.size() - 1)));
      continue;
    }
    if (line.starts_with("graph ")) {
      OB_RETURN_IF_ERROR(session::AddGraphLine(line.substr(0, line.size() - 1), graphs));
      continue;
    }
    constexpr std::string_view kSession = "session ";
    uint64_t number = 0;
    if (!line.starts_with(kSession) ||
        !absl::SimpleAtoi(std::string(line.substr(kSession.size(),
                                                  line.size() - kSession.size() - 1)),
                          &number))
      return wrong;
    std::string record;
    bool whole = false;
    while (!whole && TakeLine(text, line)) {
      record += line;
      whole = line.starts_with("end ");
    }
    if (!whole) break;  // it was ended in the middle
    OB_ASSIGN_OR_RETURN(sessions[number], session::WorkFromText(record));
  }
  run.work.sessions = sessions.size();
  for (const auto& [number, work] : sessions) AddTo(run.work, work);
  for (auto& [place, graph] : graphs) run.graphs.push_back(std::move(graph));
  return run;
}

absl::StatusOr<RecordedRun> RecordRun(const std::vector<std::string>& command, int64_t steps,
                                      bool with_graphs) {
  std::vector<std::string> variables = {absl::StrCat("OUTBOARD_ESTIMATE_FD=", kPipeFd)};
  variables.push_back(absl::StrCat("OUTBOARD_ESTIMATE_STEPS=", steps));
  if (with_graphs) variables.push_back("OUTBOARD_ESTIMATE_GRAPHS=1");
  // The record says when it is the last; reading it each time would take longer than writing it.
  return RunOnce(command, variables, [steps, read = size_t{0}](const std::string& text) mutable {
    if (steps == 0 || text.size() == read) return false;
    read = text.size();
    const absl::StatusOr<RecordedRun> run = ReadRecords(text);
    return run.ok() && run->work.steps >= static_cast<uint64_t>(steps);
  });
}

absl::StatusOr<RecordedRun> MeasureRun(const std::vector<std::string>& command,
                                       const std::vector<std::string>& variables) {
  std::vector<std::string> all = variables;
  all.push_back(absl::StrCat("OUTBOARD_MEASURE_FD=", kPipeFd));
  return RunOnce(command, all, [](const std::string& text) {
    return text.find("measured ") != std::string::npos && text.ends_with('\n');
  });
}

}  // namespace outboard::cli
