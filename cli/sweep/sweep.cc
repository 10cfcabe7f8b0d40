#include <fcntl.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "base/micros.h"
#include "cli/common.h"
#include "cli/sweep/commands.h"
#include "cli/sweep/sweep_folder.h"
#include "cli/sweep/sweep_runner.h"
#include "cli/sweep/sweep_table.h"

namespace outboard::cli {
namespace {

struct SweepFlags {
  std::vector<std::string> command, parameters;
  std::string strategy;
  int trials = 0;
  int at_once = 0;  // 0: kTrialsAtOnce; without CLOUD=1 one
  uint64_t seed = 0;
  std::string metric = "loss";
  bool larger_is_better = false;
  std::string max_cost;  // US dollars
  int64_t first_rung = 0;
  int64_t warm_up = 0;
  int keep_one_of = 3;
  bool detach = false;
  std::string id;  // of the subcommands; empty: the newest
  bool json = false, csv = false;
};

constexpr int kWrongUsage = 2, kInterrupted = 130;
constexpr std::chrono::milliseconds kLookEvery{250};
constexpr std::chrono::milliseconds kSeesEndWithin{25};  // the end of a sweep

bool AtGateway() {
  const char* const cloud = std::getenv("CLOUD");
  return cloud != nullptr && std::string_view(cloud) == "1";
}

absl::Status WithBound(const std::string& dollars, SweepPlan& plan) {
  if (!dollars.empty()) {
    const absl::StatusOr<int64_t> micros = ParseMicros(dollars);
    if (!micros.ok() || *micros <= 0)
      return absl::InvalidArgumentError(
          absl::StrCat("--max-cost \"", dollars, "\" is no amount of US dollars above 0"));
    plan.max_cost_micro_usd = *micros;
  }
  // Private workers are at no price, so that nothing would ever be bounded.
  if (plan.max_cost_micro_usd.has_value() && !AtGateway())
    return absl::InvalidArgumentError(
        "--max-cost bounds what trials cost at a gateway: set CLOUD=1; on this machine they cost "
        "nothing");
  return absl::OkStatus();
}

std::atomic<bool> stop_trials{false};

// What the process that runs the trials does. Returns its exit code.
int RunTrialsInBackground(const SweepFolder& folder) {
  struct sigaction action {};
  action.sa_handler = [](int) { stop_trials = true; };
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
  signal(SIGHUP, SIG_IGN);
  signal(SIGPIPE, SIG_IGN);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  return Report(RunTrials(folder, stop_trials));
}

bool HasOtherThreads() {
  std::error_code error;
  return std::distance(std::filesystem::directory_iterator("/proc/self/task", error), {}) > 1;
}

// `fd`, by a number that is no standard stream's; -1 stays -1.
int BehindStreams(int fd) {
  if (fd < 0 || fd > STDERR_FILENO) return fd;
  const int other = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  close(fd);
  return other;
}

// Starts the process that runs the trials, in a session of its own, so that no terminal's end or
// Ctrl-C reaches it. It is forked and executes no program: `outboard` takes 16 ms to start.
absl::Status StartRunner(const SweepFolder& folder) {
  // fork() copies the calling thread alone: a mutex that another one holds would stay locked there.
  if (HasOtherThreads())
    return absl::InternalError("a process with several threads cannot start a sweep");
  OB_ASSIGN_OR_RETURN(const int claimed, folder.Claim());
  const int lock = BehindStreams(claimed);
  const std::string log = folder.path() + "/runner.log";
  const int output =
      BehindStreams(open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  const int input = BehindStreams(open("/dev/null", O_RDONLY | O_CLOEXEC));
  std::fflush(nullptr);  // else the forked process writes it, too
  const pid_t pid = lock < 0 || output < 0 || input < 0 ? -1 : fork();
  absl::Status status;
  if (pid < 0)
    status = absl::UnavailableError(
        absl::StrCat("no process for the sweep: ", std::strerror(errno)));
  if (pid == 0) {
    setsid();
    dup2(input, STDIN_FILENO);
    dup2(output, STDOUT_FILENO);
    dup2(output, STDERR_FILENO);
    // By its pid `sweep stop` ends it: without that it is not to begin.
    const absl::Status noted = folder.NoteRunner(lock, getpid());
    const int code = noted.ok() ? RunTrialsInBackground(folder) : Report(noted);
    std::fflush(nullptr);
    _exit(code);
  }
  if (status.ok()) status = folder.NoteRunner(lock, pid);  // `Watch` is about to look
  if (pid > 0 && !status.ok()) {
    kill(pid, SIGTERM);
    waitpid(pid, nullptr, 0);
  }
  for (const int fd : {lock, output, input})
    if (fd >= 0) close(fd);  // the forked process has them
  return status;
}

// Draws over what it drew before.
class LiveTable {
 public:
  LiveTable() : on_terminal_(isatty(STDOUT_FILENO) == 1) {}

  void Show(const SweepPlan& plan, const std::vector<SweepTrial>& trials) {
    if (!on_terminal_) return Tell(plan, trials);
    winsize size{};
    ioctl(STDOUT_FILENO, TIOCGWINSZ, &size);
    const size_t columns = size.ws_col > 0 ? size.ws_col : 80;
    const size_t rows = size.ws_row > 5 ? size.ws_row - 4u : 20;
    std::vector<std::string> lines = SweepTable(plan, trials, rows, columns);
    lines.push_back(SweepSummary(plan, trials).substr(0, columns));
    std::string text;
    if (drawn_ > 0) text = absl::StrCat("\x1b[", drawn_, "F");
    for (const std::string& line : lines) absl::StrAppend(&text, line, "\x1b[K\n");
    text += "\x1b[J";
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
    drawn_ = lines.size();
  }
  void Forget() { drawn_ = 0; }  // somebody else has written

 private:
  // A line where a trial's state has changed.
  void Tell(const SweepPlan& plan, const std::vector<SweepTrial>& trials) {
    for (const SweepTrial& trial : trials) {
      const auto [it, is_new] = told_.emplace(trial.number, TrialState::kWaiting);
      if (it->second == trial.state) continue;
      it->second = trial.state;
      std::string text = absl::StrCat("trial ", trial.number, " (",
                                      absl::StrJoin(trial.values, " "), ") ", NameOf(trial.state));
      if (trial.ended() && trial.metric.has_value())
        absl::StrAppend(&text, ": ", plan.metric, " ", *trial.metric);
      if (!trial.note.empty()) absl::StrAppend(&text, "; ", trial.note);
      std::printf("%s\n", text.c_str());
    }
    std::fflush(stdout);
  }

  const bool on_terminal_;
  size_t drawn_ = 0;
  std::map<int, TrialState> told_;
};

enum class AfterInterrupt { kStop, kLeave, kGoOn };

AfterInterrupt AskAfterInterrupt() {
  if (isatty(STDIN_FILENO) != 1 || isatty(STDERR_FILENO) != 1) return AfterInterrupt::kStop;
  std::fprintf(stderr,
               "\nStop the trials (s), leave them running (l), or go on watching (Enter)? ");
  char line[16] = {};
  // Ctrl-C once more is an answer, too.
  sigset_t interrupt;
  sigemptyset(&interrupt);
  sigaddset(&interrupt, SIGINT);
  struct sigaction before {
  }, ends{};
  ends.sa_handler = [](int) {};
  sigaction(SIGINT, &ends, &before);
  pthread_sigmask(SIG_UNBLOCK, &interrupt, nullptr);
  const ssize_t count = read(STDIN_FILENO, line, sizeof line - 1);
  pthread_sigmask(SIG_BLOCK, &interrupt, nullptr);
  sigaction(SIGINT, &before, nullptr);
  if (count <= 0 || line[0] == 's' || line[0] == 'S') return AfterInterrupt::kStop;
  return line[0] == 'l' || line[0] == 'L' ? AfterInterrupt::kLeave : AfterInterrupt::kGoOn;
}

// Until the trials have ended or the user leaves. Returns the exit code. Requires BlockSignals: the
// end of a runner that is this process's child is seen at once, that of another's within
// kSeesEndWithin.
int Watch(const SweepFolder& folder) {
  const absl::StatusOr<SweepPlan> plan = folder.ReadPlan();
  if (!plan.ok()) return Report(plan.status());
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM, SIGCHLD}) sigaddset(&signals, signal);
  LiveTable table;
  bool interrupted = false;
  for (;;) {
    const std::optional<int> runner = folder.RunnerPid();  // before its last words are read
    const absl::StatusOr<std::vector<SweepTrial>> trials = folder.ReadTrials(*plan);
    if (!trials.ok()) return Report(trials.status());
    table.Show(*plan, *trials);
    if (!runner.has_value()) {
      std::printf("%s\n%s/results.csv\n", SweepSummary(*plan, *trials).c_str(),
                  folder.path().c_str());
      const auto left =
          std::ranges::count_if(*trials, [](const SweepTrial& t) { return !t.ended(); });
      if (left > 0)
        std::printf("%d trials are left: outboard sweep resume %s\n", static_cast<int>(left),
                    folder.id().c_str());
      std::error_code error;
      const std::string log = folder.path() + "/runner.log";
      if (left > 0 && !interrupted && std::filesystem::file_size(log, error) > 0 && !error)
        std::printf("why: %s\n", log.c_str());
      if (interrupted) return kInterrupted;
      const auto failed = std::ranges::count(*trials, TrialState::kFailed, &SweepTrial::state);
      return failed > 0 || left > 0 ? 1 : 0;
    }
    const timespec wait{0, std::chrono::nanoseconds(kSeesEndWithin).count()};
    int signal = -1;
    for (auto waited = kSeesEndWithin;
         signal < 0 && waited <= kLookEvery && folder.RunnerPid() == runner;
         waited += kSeesEndWithin)
      signal = sigtimedwait(&signals, nullptr, &wait);
    if (signal < 0 || signal == SIGCHLD) continue;
    const AfterInterrupt answer = interrupted ? AfterInterrupt::kStop : AskAfterInterrupt();
    table.Forget();
    if (answer == AfterInterrupt::kLeave) {
      std::printf(
          "sweep %s goes on; outboard sweep watch %s shows it, outboard sweep stop %s ends "
          "it\n",
          folder.id().c_str(), folder.id().c_str(), folder.id().c_str());
      return 0;
    }
    if (answer == AfterInterrupt::kStop && !interrupted) {
      interrupted = true;
      std::fprintf(stderr, "stopping the trials ...\n");
      kill(*runner, SIGTERM);
    }
  }
}

int StartAndWatch(const SweepFolder& folder, bool detach) {
  if (absl::Status status = StartRunner(folder); !status.ok()) return Report(status);
  if (!detach) return Watch(folder);
  std::printf("%s\n", folder.id().c_str());
  return 0;
}

int RunSweep(const SweepFlags& flags) {
  SweepPlan plan;
  plan.command = flags.command;
  plan.parameters = flags.parameters;
  plan.seed = flags.seed;
  plan.metric = flags.metric;
  plan.larger_is_better = flags.larger_is_better;
  plan.at_once = flags.at_once > 0 ? flags.at_once : AtGateway() ? kTrialsAtOnce : 1;
  plan.first_rung = flags.first_rung;
  plan.keep_one_of = flags.keep_one_of;
  plan.warm_up = flags.warm_up;
  absl::Status status = WithBound(flags.max_cost, plan);
  if (status.ok()) status = plan.Complete(flags.strategy, flags.trials);
  // Private workers of two processes share no state.
  if (status.ok() && plan.warm_up > 0 && !AtGateway())
    status = absl::InvalidArgumentError("--warm-up needs a gateway that takes snapshots: CLOUD=1");
  if (!status.ok()) {
    Report(status);
    return kWrongUsage;
  }
  const absl::StatusOr<SweepFolder> folder = SweepFolder::Create(plan);
  if (!folder.ok()) return Report(folder.status());
  std::fprintf(stderr, "sweep %s: %d trials (%s), at most %d at once; logs in %s\n",
               folder->id().c_str(), plan.trials, NameOf(plan.strategy), plan.at_once,
               folder->path().c_str());
  if (!AtGateway())
    std::fprintf(stderr,
                 "without CLOUD=1 each trial computes on a private worker of its own, with all of "
                 "this machine's cores\n");
  return StartAndWatch(*folder, flags.detach);
}

int RunResume(const SweepFlags& flags) {
  const absl::StatusOr<SweepFolder> folder = SweepFolder::Open(flags.id);
  if (!folder.ok()) return Report(folder.status());
  absl::StatusOr<SweepPlan> plan = folder->ReadPlan();
  if (!plan.ok()) return Report(plan.status());
  if (folder->RunnerPid().has_value())
    return Report(absl::FailedPreconditionError(absl::StrCat(
        "sweep ", folder->id(), " is running; outboard sweep watch ", folder->id(), " shows it")));
  if (absl::Status status = WithBound(flags.max_cost, *plan); !status.ok()) {
    Report(status);
    return kWrongUsage;
  }
  if (absl::Status status = folder->WritePlan(*plan); !status.ok()) return Report(status);
  return StartAndWatch(*folder, flags.detach);
}

int RunStop(const SweepFlags& flags) {
  const absl::StatusOr<SweepFolder> folder = SweepFolder::Open(flags.id);
  if (!folder.ok()) return Report(folder.status());
  const std::optional<int> pid = folder->RunnerPid();
  if (!pid.has_value()) {
    std::printf("sweep %s is not running\n", folder->id().c_str());
    return 0;
  }
  kill(*pid, SIGTERM);
  while (folder->RunnerPid() == pid) std::this_thread::sleep_for(kLookEvery);
  std::printf("sweep %s is stopped; outboard sweep resume %s goes on with it\n",
              folder->id().c_str(), folder->id().c_str());
  return 0;
}

int RunList() {
  const std::vector<std::string> ids = SweepFolder::List();
  if (ids.empty()) std::fprintf(stderr, "outboard: there is no sweep yet\n");
  for (const std::string& id : ids) {
    const absl::StatusOr<SweepFolder> folder = SweepFolder::Open(id);
    if (!folder.ok()) continue;  // removed since
    const absl::StatusOr<SweepPlan> plan = folder->ReadPlan();
    if (!plan.ok()) {
      std::printf("%s  %s\n", id.c_str(), std::string(plan.status().message()).c_str());
      continue;
    }
    const absl::StatusOr<std::vector<SweepTrial>> trials = folder->ReadTrials(*plan);
    const bool whole = trials.ok() && std::ranges::all_of(*trials, &SweepTrial::ended);
    std::printf("%s  %-8s  %s  %s\n", id.c_str(),
                folder->RunnerPid().has_value() ? "running"
                : whole                         ? "done"
                                                : "unfinished",
                trials.ok() ? SweepSummary(*plan, *trials).c_str()
                            : std::string(trials.status().message()).c_str(),
                absl::StrJoin(plan->command, " ").c_str());
  }
  return 0;
}

int RunShow(const SweepFlags& flags) {
  const absl::StatusOr<SweepFolder> folder = SweepFolder::Open(flags.id);
  if (!folder.ok()) return Report(folder.status());
  const absl::StatusOr<SweepPlan> plan = folder->ReadPlan();
  if (!plan.ok()) return Report(plan.status());
  const absl::StatusOr<std::vector<SweepTrial>> trials = folder->ReadTrials(*plan);
  if (!trials.ok()) return Report(trials.status());
  std::string text;
  if (flags.json) {
    text = ResultsAsJsonLines(*plan, *trials);
  } else if (flags.csv) {
    text = ResultsAsCsv(*plan, *trials);
  } else {
    for (const std::string& line : SweepTable(*plan, *trials, trials->size(), 1000))
      absl::StrAppend(&text, line, "\n");
    absl::StrAppend(&text, SweepSummary(*plan, *trials), "\n");
  }
  std::fwrite(text.data(), 1, text.size(), stdout);
  return 0;
}

}  // namespace

void AddSweepCommands(Arguments& app) {
  const auto given = std::make_shared<SweepFlags>();
  SweepFlags& flags = *given;
  Command sweep = app.Subcommand(
      "sweep",
      "Run a program with many settings: sweep -p lr=1e-4..1e-2:log -n 8 -- ./train "
      "--lr {lr} (docs/sweeps.md)");
  Command resume = sweep.Subcommand("resume", "Go on with a sweep that was interrupted");
  Command watch = sweep.Subcommand("watch", "Show the table of a sweep that runs");
  Command stop = sweep.Subcommand("stop", "End the trials that run; resume goes on with them");
  Command list = sweep.ListSubcommand("List sweeps, the newest first");
  Command show = sweep.Subcommand("show", "Print the results of a sweep");
  sweep
      .Add("-p,--parameter", &flags.parameters,
           "NAME=64,128 is a list, NAME=1e-4..1e-2 a range; :log draws its logarithm evenly, and "
           ":5 is the number of points in a grid; may be given several times")
      .OneEach();
  sweep
      .Add("-n,--trials", &flags.trials,
             "How many trials to draw; a grid has all of its combinations")
      .Between(1, 1'000'000'000)
      .ShowDefault("");
  sweep.Add("--strategy", &flags.strategy,
             "grid, random, or halving, which stops trials that fall behind (default: a grid if "
             "every parameter is a list and there is no -n, else random)");
  sweep
      .Add("-j,--at-once", &flags.at_once,
           "Trials at a time; at a gateway those without a free device wait for one, at no cost")
      .Between(1, kTrialsAtOnceMax)
      .ShowDefault(absl::StrCat(kTrialsAtOnce, "; without CLOUD=1: 1"));
  sweep.Add("--seed", &flags.seed, "Of the random draws: the same seed draws the same values")
      .ShowDefault("0");
  sweep.Add("--metric", &flags.metric, "What is compared, by the name that trials report")
      .ShowDefault();
  sweep.Add("--larger", &flags.larger_is_better, "A larger metric is better");
  sweep
      .Add("--first-rung", &flags.first_rung,
           "halving, which needs it: the step at which trials are compared first")
      .Positive()
      .ShowDefault("");
  sweep
      .Add("--keep-one-of", &flags.keep_one_of,
           "halving: of so many trials at a rung one goes on, and the next rung is so many times "
           "as far")
      .Between(2, 100);
  sweep
      .Add("--warm-up", &flags.warm_up,
           "Do so many steps once, with the first trial's values, and begin every trial with what "
           "the program has kept by then (docs/sweeps.md); needs CLOUD=1")
      .Positive()
      .ShowDefault("");
  sweep.Add("command", &flags.command, "Behind --: the program, with {NAME} where a value goes");
  for (Command command : {sweep, resume}) {
    command.Add("--max-cost", &flags.max_cost,
                "US dollars that all trials together may cost, what they cost before a resume "
                "included; needs CLOUD=1 (default: any amount)");
    command.Add("--detach", &flags.detach, "Print the sweep's id and let it run");
  }
  for (Command command : {resume, watch, stop, show})
    command.Add("id", &flags.id, "The sweep, as `sweep ls` prints it (default: the newest)");
  show.Add("--csv", &flags.csv, "Print CSV");
  show.Add("--json", &flags.json, "Print a line of JSON for each trial");

  const auto runs = [given](Command command, std::function<int(const SweepFlags&)> run) {
    command.Runs([given, run = std::move(run)] {
      BlockSignals();
      return run(*given);
    });
  };
  runs(sweep, RunSweep);
  runs(resume, RunResume);
  runs(watch, [](const SweepFlags& of) {
    const absl::StatusOr<SweepFolder> folder = SweepFolder::Open(of.id);
    return folder.ok() ? Watch(*folder) : Report(folder.status());
  });
  runs(stop, RunStop);
  runs(list, [](const SweepFlags&) { return RunList(); });
  runs(show, RunShow);
}

}  // namespace outboard::cli
